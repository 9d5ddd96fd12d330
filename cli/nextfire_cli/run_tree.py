"""The command `nextfire runs tree`."""

import time
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.live import Live

from nextfire_cli import render, session, waiting
from nextfire_cli.documents import Document
from nextfire_cli.shared_options import ExecutionId

_POLL = 1.0
"""Seconds between two requests."""
_HANDED_OVER = {"SUCCEEDED", "DEAD"}
"""A child of such a run gets a record within seconds. One that a watcher skipped has no children,
and a cancelled one may be handed over much later."""


def tree(
    context: typer.Context,
    execution_id: ExecutionId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Update until no run is in progress.")
    ] = False,
) -> None:
    """Show the runs of a sequence that belong together: each below its first parent, with state and
    duration. The critical path, marked with *, determined when the last run ended.

    [bold]Examples[/]
      nextfire runs tree EXECUTION_ID --follow
    """
    caller = session.of(context)
    client = waiting.client_of(caller, follows=follow)
    found = client.get_chain(execution_id).document
    shown = follow and not caller.for_programs and caller.out.is_terminal
    live = Live(render.run_tree(found), console=caller.out, auto_refresh=False) if shown else None
    with live or nullcontext():
        while follow and _is_under_way(found):
            time.sleep(_POLL)
            found = client.get_chain(execution_id).document
            if live:
                live.update(render.run_tree(found), refresh=True)
    if not live:
        caller.show(found, render.run_tree(found))


def _is_under_way(found: Document) -> bool:
    """Whether a run is in progress, or waits for one that has just ended."""
    states = {each["jobId"]: each["state"] for each in found["items"]}
    handed = any(
        each["state"] == "WAITING" and any(states.get(p) in _HANDED_OVER for p in each["after"])
        for each in found["items"]
        if all(states.get(parent) not in {"WAITING", None} for parent in each["after"])
        and each["after"]
    )
    return handed or bool({*states.values()} & waiting.UNDER_WAY)
