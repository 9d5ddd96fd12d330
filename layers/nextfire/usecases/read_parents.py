"""Read the runs that a run of a job with a schedule and parents waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain, islice

from nextfire.domain.awaited import (
    MAX_AWAITED,
    Above,
    Awaited,
    ParentRun,
    awaited,
    latest_success,
    run_at,
)
from nextfire.domain.edges import Which
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey, first_run_id
from nextfire.domain.instants import MOMENT
from nextfire.domain.job import Job
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, Trigger
from nextfire.domain.schedule import ScheduleType

LATEST_AMONG = 100
"""Number of a parent's latest runs, by logical time, among which `latest` looks for a success."""
_NEAR = 20  # records before an instant that are searched for a range that covers it
MAX_ABOVE = 1_000
"""Maximum number of jobs that are read to find the logical times of AFTER parents."""
_EVER = "9"  # sorts after all run ids


def read_parents(
    jobs: JobStore, runs: RunStore, child: Job, at: datetime, *, results: bool = False
) -> list[ParentRun]:
    """Return the runs that the run of *child* at *at* waits for, by consistent reads: edge by edge,
    the earliest first. Without their output, attempts and, unless *results*, results: thousands of
    runs may be held at once.

    Raises:
        InvalidInputError: A schedule is invalid.
        UndecodableError: A job or a record does not decode.
        UnavailableError: A store did not answer.
    """
    asked = [edge.job for edge in child.definition.after if edge.which is Which.ALL]
    above = read_above(jobs, child.key.tenant, asked)
    return [
        each
        for wanted in awaited(child, at, above)
        for each in _read(runs, JobKey(child.key.tenant, wanted.edge.job), wanted, results)
    ]


def read_above(
    jobs: JobStore, tenant: str, names: Collection[str], *, at_most: int | None = None
) -> Above:
    """Return the jobs *names*, and the parents of those that have no schedule, by id. Jobs that do
    not exist are left out, and those above `MAX_ABOVE` others; see `check_above`. *at_most*: jobs
    after which no other is read.
    """
    found: dict[str, Job] = {}
    level = [*names]
    while level and len(found) < MAX_ABOVE:
        there: list[Job] = []
        for name in dict.fromkeys(level):
            if at_most is not None and len(found) >= at_most:
                break
            if (job := jobs.get(JobKey(tenant, name))) is not None:
                there.append(job)
                found[name] = job
        level = [
            edge.job
            for job in there
            if job.definition.type is ScheduleType.AFTER
            for edge in job.definition.after
            if edge.job not in found
        ]
    return found


def check_above(above: Above) -> None:
    """Check that *above* has all jobs that `read_above` looked for.

    Raises:
        InvalidInputError: There were too many.
    """
    named = {
        edge.job
        for job in above.values()
        if job.definition.type is ScheduleType.AFTER
        for edge in job.definition.after
    }
    if len(above) >= MAX_ABOVE and named - above.keys():
        raise InvalidInputError(
            "after",
            next(iter(above)),
            f"the times of parents without a schedule need more than {MAX_ABOVE:,} jobs above",
            'Use `"which": "latest"`, or split the sequence.',
        )


def _read(
    runs: RunStore,
    parent: JobKey,
    wanted: Awaited,
    results: bool,  # noqa: FBT001 — private
) -> Iterator[ParentRun]:
    edge = wanted.edge
    if wanted.since is not None:
        newest = runs.between(parent, "0", _EVER, newest_first=True, page=10, lenient=True)
        found = latest_success(islice(newest, LATEST_AMONG), wanted.since)
        yield ParentRun(edge, None, found and _small(found, results))
        return
    if not wanted.times:
        return
    first, last = wanted.times[0], wanted.times[-1]
    records = records_near(runs, parent, first)
    if last > first:
        after = runs.between(parent, first_run_id(first + MOMENT), first_run_id(last + MOMENT))
        records = chain(records, after)
    near = [_small(run, results) for run in records]
    by_time: dict[datetime, list[Run]] = {}
    for run in near:
        by_time.setdefault(run.key.scheduled_at, []).append(run)
    ranges = [run for run in near if run.covered > 1]
    for at in wanted.times[:MAX_AWAITED]:
        yield ParentRun(edge, at, run_at([*by_time.get(at, []), *ranges], at))
    for at in wanted.times[MAX_AWAITED:]:
        yield ParentRun(edge, at, None)  # is never found, so that the run does not start early


def _small(run: Run, results: bool) -> Run:  # noqa: FBT001 — private
    result = run.result if results else None
    return replace(
        run, stdout=None, stderr=None, attempts=(), checkpoint=None, payload=None, result=result
    )


def records_near(runs: RunStore, parent: JobKey, at: datetime) -> Iterator[Run]:
    """The records of the run at *at*, and of a range that covers it."""
    newest = runs.between(parent, "0", first_run_id(at + MOMENT), newest_first=True, page=5)
    for run in islice(newest, _NEAR):
        exact = run.key.scheduled_at == at
        if exact or run.covers_until >= at:
            yield run
        if not exact and run.trigger is not Trigger.MANUAL:
            return
