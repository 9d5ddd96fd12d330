"""Change runs that a user named, one after the other."""

from collections.abc import Callable, Sequence

import typer

from nextfire_cli import render
from nextfire_cli.documents import Document
from nextfire_cli.errors import FAILED, ApiError, CliError, exit_code
from nextfire_cli.session import Session


def change_runs(
    caller: Session,
    execution_ids: Sequence[str],
    change: Callable[[str], Document],
    ended: Callable[[Document], Document] | None,
) -> list[Document]:
    """Return the runs that *change* changed, each once; with *ended*, which waits, once they have
    ended. Shows each as soon as it is changed, and again when it has ended.

    Raises:
        typer.Exit: The API refused some, which does not affect the rest. The exit code is 1, or
            that of the error if one run was named.
    """
    named = [*dict.fromkeys(execution_ids)]
    items: list[Document] = []
    refused: list[ApiError] = []
    for execution_id in named:
        try:
            run = change(execution_id)
        except ApiError as error:
            refused.append(error)
            caller.fail(CliError(f"{execution_id}: {error.problem}", error.remedy))
            continue
        items.append(run)
        _show(caller, run)
    if ended is not None:
        for number, run in enumerate(items):
            items[number] = ended(run)
            _show(caller, items[number])
    if caller.for_programs:
        caller.dump({"items": items})
    if refused:
        raise typer.Exit(exit_code(refused[0]) if len(named) == 1 else FAILED)
    return items


def _show(caller: Session, run: Document) -> None:
    if not caller.for_programs:
        caller.out.print(render.execution_line(run), soft_wrap=True)
