"""The command `nextfire runs cancel`."""

from functools import partial
from typing import Annotated

import typer

from nextfire.domain.cancel_plan import CancelAction
from nextfire.domain.run import RunState
from nextfire_cli import session
from nextfire_cli.documents import Document
from nextfire_cli.sequence_plan import change_sequence
from nextfire_cli.several_runs import change_runs
from nextfire_cli.shared_options import ExecutionIds, Reason
from nextfire_cli.waiting import client_of, ended


def cancel(
    context: typer.Context,
    execution_ids: ExecutionIds,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until they have ended.")] = False,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream", help="Also cancel the runs below it in its sequence; asks first."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan of --downstream and change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Skip the confirmation of --downstream.")
    ] = False,
) -> None:
    """Cancel runs. A waiting run is cancelled immediately. The script of a running one is ended
    within seconds: SIGTERM, then SIGKILL 5 s later. Exit code 1: some of several were not
    cancelled.

    With --downstream, for one run: those below it in its sequence that have not ended are cancelled
    too, and those that wait for their parents never start. Safe to repeat.

    [bold]Examples[/]
      nextfire runs cancel EXECUTION_ID --reason 'wrong input'
      nextfire runs cancel EXECUTION_ID --wait
      nextfire runs cancel EXECUTION_ID --downstream --dry-run
    """
    caller = session.of(context)
    if downstream:
        if wait:
            raise typer.BadParameter("not with --downstream", param_hint="--wait")
        if len(execution_ids) > 1:
            raise typer.BadParameter("with --downstream, name one run", param_hint="EXECUTION_ID")
        change_sequence(
            caller,
            partial(caller.client().cancel_chain, execution_ids[0]),
            question="Cancel these runs?",
            action=CancelAction.CANCEL,
            done="Cancelled",
            nothing="All of them have ended.",
            reason=reason,
            dry_run=dry_run,
            yes=yes,
        )
        return
    if given := [name for name, value in {"--dry-run": dry_run, "--yes": yes}.items() if value]:
        raise typer.BadParameter("only with --downstream", param_hint=given)
    client = client_of(caller, follows=wait)

    def cancelled(execution_id: str) -> Document:
        run = client.cancel_execution(execution_id, reason=reason).document
        if run["state"] == RunState.RUNNING:
            caller.say("Its worker is asked to end it.")
        return run

    change_runs(caller, execution_ids, cancelled, partial(ended, client) if wait else None)
