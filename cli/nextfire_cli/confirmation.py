"""Asks before changes."""

import sys

import typer

from nextfire_cli.errors import CliError
from nextfire_cli.session import Session


def in_terminal() -> bool:
    """Whether a person can answer."""
    return sys.stdin.isatty()


def confirm(caller: Session, question: str, *, yes: bool) -> None:
    """Ask *question* in a terminal, unless *yes*.

    Raises:
        CliError: The user declined, or standard input is not a terminal.
    """
    if yes:
        return
    if caller.for_programs or not in_terminal():
        asks_nobody = f"--output {caller.output} does not ask"
        why = asks_nobody if caller.for_programs else "standard input is not a terminal"
        raise CliError(
            f"Nothing was changed: this needs a confirmation, and {why}.",
            "To confirm it in advance, add --yes.",
        )
    if not typer.confirm(question, err=True):
        raise CliError("Nothing was changed.")
