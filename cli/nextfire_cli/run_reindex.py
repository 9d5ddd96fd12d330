"""The command `nextfire runs reindex`."""

from typing import Annotated, Any

import typer

from nextfire_cli import session
from nextfire_cli.errors import CliError
from nextfire_cli.shared_options import STACK

INCOMPLETE = "Add the older ones: nextfire runs reindex"
"""What to do if an overview has a `beginsAt`."""


def reindex(
    context: typer.Context,
    stack: Annotated[
        str, typer.Option(metavar="NAME", help="The CloudFormation stack of the API.")
    ] = STACK,
) -> None:
    """Rebuild the overview, from which `nextfire runs list` and `status` find runs across jobs.

    Reads the records of all runs and adds those that are missing, for example because they are from
    before an upgrade. Deletes nothing. Safe to interrupt and repeat. Uses your AWS credentials,
    which need lambda:InvokeFunction and cloudformation:DescribeStacks.

    [bold]Example[/]
      nextfire runs reindex --stack Nextfire
    """
    caller = session.of(context)
    account = caller.account()
    function = account.outputs(stack).get("ProjectorFunction")
    if function is None:
        raise CliError(f"The stack {stack!r} has no overview.", "Deploy this version first.")
    runs = undecodable = 0
    event: dict[str, Any] | None = {"rebuild": {}}
    while event is not None:
        done = account.invoke(function, event)
        runs += done["runs"]
        undecodable += done["undecodable"]
        event = done.get("next")
        if event is not None:
            caller.say(f"{runs} runs so far.")
    found = {"runs": runs, "undecodable": undecodable}
    unread = f" {undecodable} records do not decode." if undecodable else ""
    caller.show(found, f"The overview has {runs} runs.{unread}")
