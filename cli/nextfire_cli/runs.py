"""The commands of `nextfire runs`."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from nextfire.domain.job import JobState
from nextfire.domain.run import RunState
from nextfire_cli import render, session
from nextfire_cli.client import Client, Document

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
POLL = 0.5
"""Seconds between two looks at the API."""
_OVER = {JobState.COMPLETED, JobState.CANCELLED}
_UNDER_WAY = {state for state in RunState if not state.ended}


@app.command("list")
def list_(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID", show_default=False)],
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Go on printing a line for each change, until the job has no run left or Ctrl-C. "
            "With --json: one JSON document a line.",
        ),
    ] = False,
) -> None:
    """List a job's runs, newest first: how late each started, how long it took."""
    caller = session.of(context)
    client = caller.client()
    if not follow:
        items, more = client.executions(job_id, limit=limit)
        job = None if items or caller.as_json else client.job(job_id)
        caller.show({"items": items}, render.executions(items, job))
        if more:
            caller.say(f"There are more than {limit}: raise --limit.")
        return

    def tell(job: Document) -> None:
        if job["state"] == JobState.PAUSED:
            caller.say(
                f"The job is {render.paused(job)}. What is due later waits for its resumption."
            )

    for run in changes(client, job_id, limit=limit, sleep=time.sleep, on_state=tell):
        if caller.as_json:
            typer.echo(json.dumps(run, ensure_ascii=False))
        else:
            caller.out.print(render.execution_line(run), soft_wrap=True)


@app.command()
def get(
    context: typer.Context,
    execution_id: Annotated[str, typer.Argument(metavar="EXECUTION_ID", show_default=False)],
) -> None:
    """Show one run: when it was due, dispatched, started and done, its attempts and output."""
    caller = session.of(context)
    run = caller.client().execution(execution_id)
    caller.show(run, render.execution(run))


def changes(
    client: Client,
    job_id: str,
    *,
    limit: int,
    sleep: Callable[[float], None],
    on_state: Callable[[Document], None],
) -> Iterator[Document]:
    """A job's newest runs, oldest first, then each that is new or has changed, while any can be.

    `on_state` is given the job at first, and when its state has changed.
    """
    seen: dict[str, Document] = {}
    state = None
    while True:
        # The job first: a run that it makes after this look is seen in the next round.
        job = client.job(job_id)
        if job["state"] != state:
            state = job["state"]
            on_state(job)
        over = state in _OVER
        runs, _ = client.executions(job_id, limit=limit)
        for run in reversed(runs):
            key = run["executionId"]
            if _progress(seen.get(key)) != _progress(run):
                yield run
            seen[key] = run
        if over and not any(run["state"] in _UNDER_WAY for run in runs):
            return
        sleep(POLL)


def _progress(run: Document | None) -> object:
    return run and (run["state"], run.get("attempt"), run.get("dispatch"))
