"""The commands of `nextfire scripts`."""

# What a call does not need it does not import: boto3 takes a second.
# ruff: noqa: PLC0415

import re
import sys
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from nextfire.domain.job import Target
from nextfire.domain.script import MAX_SCRIPT_BYTES, script_name
from nextfire_cli import render, session
from nextfire_cli.errors import CliError

if TYPE_CHECKING:
    from nextfire_cli.aws import Account

_SCRIPT, _ARCHIVE = ".py", ".zip"
_MAIN = "__main__.py"
_POOL = re.compile(r"(?=.{1,32}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Bucket = Annotated[
    str | None,
    typer.Option(
        envvar="NEXTFIRE_SCRIPTS_BUCKET",
        help="The scripts bucket. [dim]Default: the local stack's[/]",
    ),
]


@app.command()
def push(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, show_default=False)],
    pool: Annotated[str, typer.Option(help="The pool whose jobs may name it.")] = "default",
    name: Annotated[
        str | None,
        typer.Option(help="What jobs call it (target.handler). [dim]Default: the file's name[/]"),
    ] = None,
    bucket: Bucket = None,
) -> None:
    """Upload a job script: a .py file, or a .zip archive with a __main__.py at its top. Jobs that
    name it run the new text from their next run on.

    An archive is named with its ending: target.handler is report.zip then.

    [bold]Examples[/]
      nextfire scripts push examples/hello.py
      nextfire scripts push build/report.py --pool batch --name nightly-report
      nextfire scripts push build/app.zip
    """
    caller = session.of(context)
    handler = _handler(file, name)
    _check_pool(caller, pool)
    if warning := _check(file):
        caller.say(warning)
    place = _place(caller, bucket)
    key = f"{place.tenant}/{pool}/{script_name(handler)}"
    url = place.account.push_script(place.bucket, key, file)
    caller.show({"url": url, "pool": pool, "handler": handler}, Text(render.escaped(url)))


@app.command("list")
def list_(context: typer.Context, bucket: Bucket = None) -> None:
    """List the uploaded scripts."""
    caller = session.of(context)
    place = _place(caller, bucket)
    items = [
        {
            "pool": script.pool,
            "handler": script.handler,
            "url": script.url,
            "size": script.size,
            "modifiedAt": script.modified_at.isoformat().replace("+00:00", "Z"),
        }
        for script in place.account.scripts(place.bucket, place.tenant)
    ]
    caller.show({"items": items}, render.scripts(items))


def _handler(file: Path, name: str | None) -> str:
    """What jobs call the script in *file*.

    Raises:
        typer.BadParameter: No job could call it so.
    """
    archive = file.suffix.lower() == _ARCHIVE
    handler = name or file.stem
    if archive and not handler.endswith(_ARCHIVE):
        handler += _ARCHIVE
    try:
        Target(handler=handler)
    except ValidationError as error:
        raise typer.BadParameter(
            f"{handler!r} is no script's name: at most 128 letters, digits, `_`, `.` and `-`, "
            "beginning with a letter or a digit.",
            param_hint="--name",
        ) from error
    if handler.endswith(_ARCHIVE) and not archive:
        raise typer.BadParameter(f"{file.name} is no {_ARCHIVE} archive", param_hint="--name")
    return handler


def _check_pool(caller: session.Session, pool: str) -> None:
    if not _POOL.fullmatch(pool):
        raise typer.BadParameter(
            f"{pool!r} is no pool's name: lower-case letters, digits and single hyphens, "
            "at most 32.",
            param_hint="--pool",
        )
    stack = caller.stack()
    if stack is not None and stack.pools and pool not in stack.pools:
        raise typer.BadParameter(
            f"the local stack has no pool {pool!r}; it has {', '.join(sorted(stack.pools))}",
            param_hint="--pool",
        )


def _check(file: Path) -> str | None:
    """What may be wrong with the script in *file*.

    Raises:
        CliError: No executor would run it.
    """
    from nextfire.adapters.packages import inline_metadata

    try:
        size = file.stat().st_size
        if size > MAX_SCRIPT_BYTES:
            raise CliError(
                f"{file} has {size} bytes, more than {MAX_SCRIPT_BYTES}: no executor takes it.",
                "Keep data out of it, in S3; and name packages inline (PEP 723) where the pool\n"
                "installs them.",
            )
        if file.suffix.lower() == _ARCHIVE:
            with zipfile.ZipFile(file) as archive:
                if _MAIN not in archive.namelist():
                    raise CliError(
                        f"{file} has no {_MAIN} at its top, with which Python begins.",
                        f"Put one in: zip {file.name} {_MAIN}. Not in a folder within.",
                    )
            return None
        if zipfile.is_zipfile(file):
            raise CliError(f"{file} is an archive.", f"Let its name end in {_ARCHIVE}.")
        if file.suffix.lower() != _SCRIPT:
            raise CliError(
                f"{file} is no script.",
                f"Let its name end in {_SCRIPT}, an archive's in {_ARCHIVE}.",
            )
        inline_metadata(file.read_bytes())
        return _does_not_compile(file)
    except ValueError as error:
        raise CliError(
            f"{file} cannot be run: {error}.", "Mend the block, or leave it out."
        ) from error
    except zipfile.BadZipFile as error:
        raise CliError(f"{file} is no zip archive: {error}.", "Make it anew.") from error
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from error


def _does_not_compile(file: Path) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(file.read_bytes(), file.name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        version = ".".join(map(str, sys.version_info[:2]))
        return f"Warning: {file} does not compile with Python {version}: {error}."
    return None


@dataclass(frozen=True)
class _Place:
    account: "Account"
    bucket: str
    tenant: str


def _place(caller: session.Session, bucket: str | None) -> _Place:
    stack = caller.stack()
    bucket = bucket or (stack.scripts_bucket if stack else None)
    if bucket is None:
        raise CliError(
            "It is not known where the scripts are.",
            "Give --bucket (the stack's output ScriptsBucket),\n"
            "or start the local stack with `nextfire up`.",
        )
    account = caller.account()
    return _Place(account, bucket, caller.tenant())
