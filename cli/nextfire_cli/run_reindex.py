"""The command `nextfire runs reindex`."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import typer

from nextfire_cli import session
from nextfire_cli.deployed_stack import account_of
from nextfire_cli.errors import CliError
from nextfire_cli.session import Session
from nextfire_cli.shared_options import STACK, Stack

INCOMPLETE = "Add the older ones: nextfire runs reindex"
"""What to do if an overview has a `beginsAt`."""
_WAITS = (5, 10, 20, 40, 60, 60, 60, 60, 60)
"""Seconds before a call is repeated that failed after others: six minutes."""


def reindex(context: typer.Context, stack: Stack = None) -> None:
    """Rebuild the overview, from which `nextfire runs list` and `status` find runs across jobs.

    Reads the records of all runs and adds those that are missing, for example because they are from
    before an upgrade. Deletes nothing. Safe to interrupt and repeat. Uses your AWS credentials,
    which need lambda:InvokeFunction and cloudformation:DescribeStacks.

    [bold]Example[/]
      nextfire runs reindex --stack Nextfire
    """
    caller = session.of(context)
    account = account_of(caller, stack)
    function = account.outputs(stack or STACK).get("ProjectorFunction")
    if function is None:
        raise CliError(
            f"The stack {stack or STACK!r} has no overview.", "Deploy this version first."
        )
    runs = undecodable = 0
    event: dict[str, Any] | None = {"rebuild": {}}
    waits: Sequence[int] = ()  # the credentials may not suffice
    while event is not None:
        done = _repeated(partial(account.invoke, function, event), waits, caller)
        waits = _WAITS
        runs += done["runs"]
        undecodable += done["undecodable"]
        event = done.get("next")
        if event is not None:
            caller.say(f"{runs} runs so far.")
    found = {"runs": runs, "undecodable": undecodable}
    unread = f" {undecodable} records do not decode." if undecodable else ""
    caller.show(found, f"The overview has {runs} runs.{unread}")


def _repeated(
    call: Callable[[], dict[str, Any]], waits: Sequence[int], caller: Session
) -> dict[str, Any]:
    """The response of *call*, which may be repeated; after a failure again, after each of *waits*.

    Raises:
        CliError: It failed each time.
    """
    for wait in waits:
        try:
            return call()
        except CliError as error:
            caller.say(f"{error.problem} Trying again; Ctrl-C ends this.")
            time.sleep(wait)
    return call()
