"""The command `nextfire runs redrive`."""

from functools import partial
from typing import Annotated

import typer

from nextfire.domain.redrive_plan import Definition, RedriveAction
from nextfire_cli import session
from nextfire_cli.sequence_plan import change_sequence
from nextfire_cli.several_runs import change_runs
from nextfire_cli.shared_options import ExecutionIds, Reason
from nextfire_cli.waiting import client_of, ended, exit_by_outcome


def redrive(
    context: typer.Context,
    execution_ids: ExecutionIds,
    reason: Reason = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until they have ended. Exit code 1: one has failed."),
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="JOB_ID",
            help="Redrive the sequence of this run from this job on. What succeeded stays.",
        ),
    ] = None,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream",
            help="Below --from, also start runs again that are DEAD, or that an executor skipped.",
        ),
    ] = False,
    definition: Annotated[
        Definition | None,
        typer.Option(
            "--definition",
            help="With --from. run: refuse if a job that starts again has changed its target, "
            "payload, retryPolicy or timeoutSec since its run started. Default: current.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan for --from and change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Skip the confirmation of the plan for --from.")
    ] = False,
) -> None:
    """Redrive dead runs, with as many attempts as their jobs allow. Or start runs now that wait
    for their retry, without more attempts. Exit code 1: some of several were not redriven.

    With --from: redrive a sequence, of which EXECUTION_ID is any run, from one of its jobs on. The
    run of that job starts again if it is DEAD, CANCELLED or SKIPPED, and the sequence continues
    from there. Shows the plan and asks for confirmation. Safe to repeat.

    To redrive a whole pool: nextfire dlq redrive --pool POOL.

    [bold]Examples[/]
      nextfire runs redrive EXECUTION_ID --reason 'disk replaced'
      nextfire runs redrive EXECUTION_ID --wait
      nextfire runs redrive EXECUTION_ID --from load --dry-run
      nextfire runs redrive EXECUTION_ID --from load --downstream --yes
    """
    caller = session.of(context)
    if from_ is None:
        options = {
            "--downstream": downstream,
            "--definition": definition,
            "--dry-run": dry_run,
            "--yes": yes,
        }
        if given := [name for name, value in options.items() if value]:
            raise typer.BadParameter("only with --from JOB_ID", param_hint=given)
        client = client_of(caller, follows=wait)
        runs = change_runs(
            caller,
            execution_ids,
            lambda each: client.redrive_execution(each, reason=reason).document,
            partial(ended, client) if wait else None,
        )
        for run in runs if wait else ():
            exit_by_outcome(run)
        return
    if wait:
        raise typer.BadParameter("not with --from", param_hint="--wait")
    if len(execution_ids) > 1:
        raise typer.BadParameter("with --from, name one run", param_hint="EXECUTION_ID")
    ask = partial(
        caller.client().redrive_chain,
        execution_ids[0],
        from_=from_,
        downstream=downstream,
        definition=definition,
    )
    change_sequence(
        caller,
        ask,
        question="Redrive these runs?",
        action=RedriveAction.RUN,
        done="Started",
        nothing="Nothing starts again.",
        reason=reason,
        dry_run=dry_run,
        yes=yes,
    )
