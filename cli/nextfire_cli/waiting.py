"""Waits for the end of runs, and follows them through outages of the API."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import typer

from nextfire import Client
from nextfire.client.access import is_local
from nextfire.client.errors import ClientError, UnreachableError
from nextfire.domain.run import RunState
from nextfire_cli.documents import Document
from nextfire_cli.session import Session

POLL = 0.5
"""Seconds between the first two looks at a run."""
_LAST_LOOK = 10.0
"""Seconds between two looks at most."""
UNDER_WAY = {state for state in RunState if not state.ended}
_MOMENT = timedelta(milliseconds=1)


def client_of(caller: Session, *, follows: bool) -> Client:
    """The API. *follows*: once it has answered, a read without a response is repeated, with a
    notice; but not if the local stack was stopped.
    """
    client = caller.client()

    def notice(error: ClientError) -> None:
        stopped = isinstance(error, UnreachableError) and not error.maybe_done
        if stopped and is_local(client.endpoint):
            raise error
        caller.say(f"{error.problem} Trying again; Ctrl-C ends this.")

    if follows:
        client.outlast_outages(notice)
    return client


def pauses() -> Iterator[None]:
    """Pause at each step: for `POLL` seconds, then longer by half each time, up to 10 s."""
    seconds = POLL
    while True:
        time.sleep(seconds)
        yield
        seconds = min(seconds * 1.5, _LAST_LOOK)


def ended(client: Client, run: Document) -> Document:
    """Return *run* once it has ended."""
    pause = pauses()
    while run["state"] in UNDER_WAY:
        next(pause)
        run = client.get_execution(run["executionId"]).document
    return run


def exit_by_outcome(run: Document) -> None:
    """End the command with exit code 1 if *run* did not succeed."""
    if run["state"] != RunState.SUCCEEDED:
        raise typer.Exit(1)


def drained(client: Client, job: Document) -> Document:
    """Return *job* once it is not draining: its earlier runs have ended, or it was resumed."""
    pause = pauses()
    while job.get("draining"):
        next(pause)
        job = client.get_job(job["jobId"]).document
    return job


def backfilled(client: Client, asked: Document) -> list[Document]:
    """Return the runs of the backfill *asked* once it and all of them have ended, newest first."""
    job_id, pause = asked["jobId"], pauses()
    while (found := client.get_job(job_id).document.get("backfill")) is not None:
        if found["backfillId"] != asked["backfillId"]:
            break  # another one has taken its place
        next(pause)
    pause = pauses()
    while True:
        runs = _of_backfill(client, asked)
        if not any(run["state"] in UNDER_WAY for run in runs):
            return runs
        next(pause)


def _of_backfill(client: Client, asked: Document) -> list[Document]:
    """Runs of the occurrences of *asked* that did not end before it was requested: a backfill runs
    occurrences without a record.
    """
    since = datetime.fromisoformat(asked["askedAt"])
    runs = client.all_executions(
        job_id=asked["jobId"],
        from_=asked["first"],
        to=datetime.fromisoformat(asked["last"]) + _MOMENT,
    )
    return [run.document for run in runs if run.finished_at is None or run.finished_at >= since]


def took(run: Document, now: datetime) -> timedelta:
    """How long the latest attempt of *run* took, up to *now* if it is running."""
    if "startedAt" not in run or run["state"] in UNDER_WAY - {RunState.RUNNING}:
        return timedelta()
    until = run.get("finishedAt")
    return (datetime.fromisoformat(until) if until else now) - datetime.fromisoformat(
        run["startedAt"]
    )
