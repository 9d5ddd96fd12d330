"""A progress bar of commands that take long."""

import contextlib
from collections.abc import Iterator

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from nextfire_cli.session import Session


class Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, completed: int) -> None:
        self._progress.update(self._task, completed=completed)

    def add(self, completed: int) -> None:
        self._progress.update(self._task, advance=completed)


@contextlib.contextmanager
def progress(caller: Session, noun: str, total: int | None, *, shown: bool = True) -> Iterator[Bar]:
    """A progress bar on stderr, if that is a terminal. *total*: approximate, if known."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}" + ("" if total is None else "/{task.total:.0f}")),
        TimeElapsedColumn(),
    )
    console = caller.err
    shown = shown and console.is_terminal and not caller.for_programs
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        yield Bar(bar, bar.add_task(noun, total=total))
