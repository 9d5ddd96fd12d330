"""Waits for the end of a run."""

import time

import typer

from nextfire import Client
from nextfire.domain.run import RunState
from nextfire_cli.documents import Document

POLL = 0.5
"""Seconds between two looks at a run."""
UNDER_WAY = {state for state in RunState if not state.ended}


def ended(client: Client, run: Document) -> Document:
    """Return *run* once it has ended."""
    while run["state"] in UNDER_WAY:
        time.sleep(POLL)
        run = client.get_execution(run["executionId"]).document
    return run


def exit_by_outcome(run: Document) -> None:
    """End the command with exit code 1 if *run* did not succeed."""
    if run["state"] != RunState.SUCCEEDED:
        raise typer.Exit(1)
