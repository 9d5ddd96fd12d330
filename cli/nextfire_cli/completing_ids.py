"""The shell's completion of ids of jobs and runs, which asks the API."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from nextfire_cli.global_options import is_typed
from nextfire_cli.output import Output
from nextfire_cli.session import Session

if TYPE_CHECKING:
    from nextfire import Client

_SECONDS = 2
"""How long to wait for the API."""
_PAGE = 100


def job_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The ids that begin with *incomplete*, of the first 100 jobs by id."""
    return _found(
        context,
        incomplete,
        lambda client: [job.job_id for job in client.list_jobs(limit=_PAGE).items],
    )


def execution_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The ids that begin with *incomplete*, of the last 100 runs of the last day."""
    return _found(
        context,
        incomplete,
        lambda client: [run.execution_id for run in client.list_all_executions(limit=_PAGE).items],
    )


def _found(
    context: typer.Context, incomplete: str, ask: Callable[["Client"], Iterable[str]]
) -> list[str]:
    """What *ask* lists that begins with *incomplete*; after any error nothing: a user is typing."""
    root: Any = context.find_root()
    given = root.params
    caller = Session(
        given["endpoint"],
        Output.NAME,
        given["profile"],
        given["region"],
        transport=root.obj,
        auth=given["auth"],
        quiet=True,
    )
    try:
        if is_typed(root, "context_name") or not caller.endpoint:
            caller = caller.in_context(given["context_name"])
        with caller.client(_SECONDS) as client:
            return [each for each in ask(client) if each.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - see above
        return []
