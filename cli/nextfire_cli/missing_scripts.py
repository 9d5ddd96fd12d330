"""Looks for the scripts of jobs before these are stored: a job whose script is missing is valid,
and fails when it runs.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Annotated, Any

import typer

from nextfire import Client
from nextfire.client.errors import ApiError, NotFound
from nextfire_cli.errors import CliError
from nextfire_cli.session import Session

Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Reject a job whose script has not been uploaded, instead of a warning."
    ),
]


def check_scripts(
    caller: Session, client: Client, jobs: Iterable[dict[str, Any]], *, strict: bool
) -> None:
    """Warn of scripts of *jobs* (documents, maybe partial) that have not been uploaded. Output for
    programs has no such warning: their stderr has errors only.

    Raises:
        CliError: *strict*, and a script is missing.
    """
    if caller.for_programs and not strict:
        return
    for pool, handler in dict.fromkeys(filter(None, map(_script, jobs))):
        if _exists(client, pool, handler):
            continue
        problem = f"The script {handler!r} was not found in the pool {pool}: runs will fail."
        remedy = _remedy(pool, handler)
        if strict:
            raise CliError(f"Nothing was changed. {problem}", remedy)
        caller.warn(f"{problem} {remedy}")


@contextmanager
def checked_scripts(
    caller: Session, client: Client, job: dict[str, Any], *, strict: bool
) -> Iterator[None]:
    """Within, *job* is stored. If *strict*, check its script before; otherwise warn afterwards: the
    API may reject the job for another reason, such as its pool.

    Raises:
        CliError: As `check_scripts`.
    """
    if strict:
        check_scripts(caller, client, [job], strict=True)
    yield
    if not strict:
        check_scripts(caller, client, [job], strict=False)


def _remedy(pool: str, handler: str) -> str:
    if handler.endswith(".py"):
        return f"A script's name is that of its file without .py: use {PurePath(handler).stem!r}."
    in_pool = "" if pool == "default" else f" --pool {pool}"
    if handler.endswith(".zip"):
        return f"Upload it: nextfire scripts push {handler}{in_pool}"
    upload = f"Upload it: nextfire scripts push {handler}.py{in_pool}"
    return f"{upload} (the name of an archive ends in .zip: {handler}.zip)"


def _script(job: dict[str, Any]) -> tuple[str, str] | None:
    """The pool and the name of the script of *job*; None if it has none."""
    target = job.get("target")
    if not isinstance(target, dict) or not isinstance(target.get("handler"), str):
        return None
    return str(target.get("pool") or "default"), target["handler"].partition("@")[0]


def _exists(client: Client, pool: str, handler: str) -> bool:
    """Also true if the caller may not list scripts, or the job is invalid: the API says so then."""
    try:
        return bool(client.list_script_versions(pool, handler, limit=1).document["items"])
    except NotFound as error:
        return error.by_gateway  # an API without this route
    except ApiError:
        return True
