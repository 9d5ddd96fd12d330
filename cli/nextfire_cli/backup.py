"""`nextfire backup` and `nextfire restore`: the data of the embedded stack, in one file."""

# Imported on first use: the database takes a second.
# ruff: noqa: PLC0415

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from nextfire.client.folder import FOLDER
from nextfire_cli import session
from nextfire_cli.errors import CliError, reported


def backup(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", dir_okay=False, help="The file to write; an existing one is replaced."
        ),
    ],
) -> None:
    """Back up the embedded stack: jobs, runs, keys, scripts, outputs and secrets.

    The stack may run meanwhile. The file contains secrets and the stack's API key, so only you can
    read it.

    [bold]Examples[/]
      nextfire backup nextfire.backup
    """
    from nextfire.adapters.files.stack_folder import (
        API_KEY,
        DATABASE,
        OUTPUTS,
        SCRIPTS,
        SECRETS,
        UPLOAD_KEY,
    )
    from nextfire.adapters.sqlite.backup import back_up
    from nextfire.adapters.sqlite.database import Database

    data = _data()
    if not (data / DATABASE).is_file():
        raise CliError(
            f"The folder {data} has no embedded stack.",
            "Change into the folder in which you ran `nextfire up`.",
        )
    with _reported("back up", file):
        parts = (SCRIPTS, OUTPUTS, SECRETS, API_KEY, UPLOAD_KEY)
        database = Database(data / DATABASE, as_is=True)
        back_up(database, data, file.absolute(), parts=parts)
    caller = session.of(context)
    caller.show({"file": str(file), "bytes": file.stat().st_size}, Text(f"Backed up to {file}."))


def restore(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that `nextfire backup` wrote.")
    ],
) -> None:
    """Restore a backup of an embedded stack into this folder, which must not have a stack.

    Jobs continue where the backup has them when the stack starts: with the occurrences that their
    misfire policy allows.

    [bold]Examples[/]
      mv .nextfire/embedded old    keep what is there
      nextfire restore nextfire.backup
      nextfire up
    """
    from nextfire.adapters.files.stack_folder import DATABASE
    from nextfire.adapters.sqlite.backup import restore as restore_into
    from nextfire_cli.local.state import locked

    data = _data()
    with locked(data.parent), _reported("restore", file):
        restore_into(file, data, database=DATABASE)
    caller = session.of(context)
    caller.show({"folder": str(data)}, Text(f"Restored to {data}. Start it with `nextfire up`."))


def _data() -> Path:
    """The folder with the data of the embedded stack."""
    from nextfire.adapters.files.stack_folder import DATA

    return session.local_root() / FOLDER / DATA


@contextmanager
def _reported(what: str, file: Path) -> Iterator[None]:
    """Report errors while doing *what* with *file*."""
    try:
        with reported():
            yield
    except OSError as error:
        raise CliError(
            f"Cannot {what} {error.filename or file}: {error.strerror}.",
            "Check the path and its permissions, and the free space, for example with `df -h .`.",
        ) from error
