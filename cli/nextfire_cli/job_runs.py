"""The commands of `nextfire jobs` that start runs: `run` and `backfill`."""

from typing import Annotated

import typer

from nextfire.domain.backfill import MOST, Order
from nextfire.domain.instants import isoformat
from nextfire.domain.run import RunState
from nextfire_cli import render, session, waiting
from nextfire_cli.documents import Document
from nextfire_cli.durations import moment, present
from nextfire_cli.job_control import JobId
from nextfire_cli.job_files import read_payload
from nextfire_cli.shared_options import PAST, PAST_FORMS, Reason
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
            "--from",
            "--since",
            metavar=PAST,
            help=f"Start of the range, inclusive: {PAST_FORMS}.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "--until",
            metavar=PAST,
            help="End of the range, exclusive. [dim]Default: now[/]",
        ),
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
      nextfire jobs backfill job_a93f2 --from 7d --wait
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
    if from_ is None:
        raise typer.BadParameter(
            "say from when: an instant, or a time ago such as 7d", param_hint="--from"
        )
    now = present()
    asked = client.begin_backfill(
        job_id,
        from_=moment(from_, "--from", now),
        to=isoformat(now) if to is None else moment(to, "--to", now),
        max=max_,
        order=Order.NEWEST_FIRST if newest_first else None,
        reason=reason,
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
