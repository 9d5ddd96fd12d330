"""The commands of `nextfire jobs` that start runs: `run` and `backfill`."""

from typing import Annotated

import typer

from nextfire.domain.backfill import MOST, Order
from nextfire.domain.run import RunState
from nextfire_cli import render, session, waiting
from nextfire_cli.documents import Document
from nextfire_cli.job_control import JobId
from nextfire_cli.job_files import read_payload
from nextfire_cli.shared_options import Reason
from nextfire_cli.waiting import ended, exit_by_outcome


def run(
    context: typer.Context,
    job_id: JobId,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Replaces the job's payload: JSON, or @FILE."),
    ] = None,
    reason: Reason = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended.")] = False,
) -> None:
    """Run a job now, in addition to its schedule, which does not change. With --wait, exit code 1:
    the run did not succeed.

    [bold]Examples[/]
      nextfire jobs run job_a93f2
      nextfire jobs run job_a93f2 --wait
      nextfire jobs run job_a93f2 --payload '{"day": 23}' --reason 'wrong report'
    """
    override: Document = {} if payload is None else {"payload": read_payload(payload)}
    caller = session.of(context)
    client = waiting.client_of(caller, follows=wait)
    execution = client.run_job(job_id, reason=reason, **override).document
    if wait:
        caller.say(f"Waiting for {execution['executionId']}. Ctrl-C does not cancel it.")
        execution = ended(client, execution)
    caller.show(execution, render.execution(execution))
    if wait:
        exit_by_outcome(execution)


def backfill(
    context: typer.Context,
    job_id: JobId,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="INSTANT", help="Start of the range, inclusive; ISO 8601, UTC."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="End of the range, exclusive; ISO 8601, UTC."),
    ] = None,
    max_: Annotated[
        int | None,
        typer.Option(
            "--max",
            min=1,
            max=MOST,
            help="Reject the backfill if there are more. [dim]Default: 1000[/]",
        ),
    ] = None,
    newest_first: Annotated[
        bool, typer.Option("--newest-first", help="Run the newest occurrences first.")
    ] = False,
    reason: Reason = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the current backfill: start no more runs.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until its runs have ended.")] = False,
) -> None:
    """Run past occurrences of a job that have no record, ten at a time. With --wait, exit code 1:
    not all of them succeeded.

    [bold]Examples[/]
      nextfire jobs backfill job_a93f2 --from 2026-05-01 --to 2026-05-03
      nextfire jobs backfill job_a93f2 --from 2026-05-01 --to 2026-05-03 --wait
      nextfire jobs backfill job_a93f2 --stop
    """
    caller = session.of(context)
    client = waiting.client_of(caller, follows=wait)
    if stop:
        if any(each is not None for each in (from_, to, max_, reason)) or newest_first or wait:
            raise typer.BadParameter("it takes nothing else", param_hint="--stop")
        job = client.stop_backfill(job_id).document
        caller.show(job, render.job(job))
        return
    if from_ is None or to is None:
        raise typer.BadParameter("say from when to when", param_hint="--from and --to")
    order = Order.NEWEST_FIRST if newest_first else None
    asked = client.begin_backfill(
        job_id, from_=from_, to=to, max=max_, order=order, reason=reason
    ).document
    if not wait:
        caller.show(asked, render.backfill(asked))
        return
    caller.say(f"{asked['count']} occurrences, {asked['first']} to {asked['last']}")
    runs = waiting.backfilled(client, asked)
    caller.show({"backfill": asked, "items": runs}, render.backfilled(runs))
    succeeded = sum(run["state"] == RunState.SUCCEEDED for run in runs)
    if runs:
        caller.say(f"{succeeded} of {len(runs)} runs succeeded.")
    if succeeded < len(runs):
        raise typer.Exit(1)
