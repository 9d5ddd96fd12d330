"""Read the runs that a run of a job with a schedule and parents waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
from nextfire.domain.ids import AFTER_ALL_RUNS, JobKey, first_run_id
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
ReadJobs = Callable[[Sequence[JobKey]], Iterable[Job]]
"""Reads those of some jobs that exist, in their order."""


def read_parents(jobs: JobStore, runs: RunStore, child: Job, at: datetime) -> list[ParentRun]:
    """Return the runs that the run of *child* at *at* waits for, by consistent reads: edge by edge,
    the earliest first. Without their output, attempts and results: thousands of runs may be held at
    once.

    Raises:
        InvalidInputError: A schedule is invalid.
        UndecodableError: A job or a record does not decode.
        UnavailableError: A store did not answer.
    """
    return [*iter_parents(jobs, runs, child, at, results=False)]


def iter_parents(
    jobs: JobStore, runs: RunStore, child: Job, at: datetime, *, results: bool
) -> Iterator[ParentRun]:
    """Read them edge by edge; see `read_parents`. *results*: with their results, of which those of
    one edge are held at once.
    """
    asked = [edge.job for edge in child.definition.after if edge.which is Which.ALL]
    above = read_above(one_by_one(jobs), child.key.tenant, asked)
    for wanted in awaited(child, at, above):
        yield from _read(runs, JobKey(child.key.tenant, wanted.edge.job), wanted, results)


def one_by_one(jobs: JobStore) -> ReadJobs:
    """Read jobs one by one: executors have no permission to read batches of jobs."""
    return lambda keys: (job for key in keys if (job := jobs.get(key)) is not None)


def in_batches(jobs: JobStore) -> ReadJobs:
    """Read jobs in batches, by consistent reads and without payloads. Raises as `JobStore.get`."""

    def read(keys: Sequence[JobKey]) -> Iterator[Job]:
        found = jobs.get_many(keys, consistent=True)
        for key in keys:
            job = found.get(key)
            if isinstance(job, Exception):
                raise job
            if job is not None:
                yield job

    return read


def read_above(read: ReadJobs, tenant: str, names: Collection[str]) -> Above:
    """Return the jobs *names*, and the parents of those that have no schedule, by id. At most
    `MAX_ABOVE` ids are read, the nearest ones; see `check_above`. Jobs that do not exist are left
    out.
    """
    found: dict[str, Job] = {}
    known: set[str] = set()
    level = [*dict.fromkeys(names)][:MAX_ABOVE]
    while level:
        known.update(level)
        jobs = [*read([JobKey(tenant, name) for name in level])]
        found |= {job.key.job_id: job for job in jobs}
        above = dict.fromkeys(name for name in _named(jobs) if name not in known)
        level = [*islice(above, MAX_ABOVE - len(known))]
    return found


def check_above(above: Above) -> None:
    """Check that *above* has all jobs that `read_above` looked for.

    Raises:
        InvalidInputError: There were too many.
    """
    if len({*above, *_named(above.values())}) > MAX_ABOVE:
        raise InvalidInputError(
            "after",
            next(iter(above)),
            f"the times of parents without a schedule need more than {MAX_ABOVE:,} jobs above",
            'Use `"which": "latest"`, or split the sequence.',
        )


def _named(jobs: Iterable[Job]) -> Iterator[str]:
    """The parents of those *jobs* that have no schedule."""
    return (
        edge.job
        for job in jobs
        if job.definition.type is ScheduleType.AFTER
        for edge in job.definition.after
    )


def _read(
    runs: RunStore,
    parent: JobKey,
    wanted: Awaited,
    results: bool,  # noqa: FBT001 — private
) -> Iterator[ParentRun]:
    edge = wanted.edge
    if wanted.since is not None:
        newest = runs.between(parent, "0", AFTER_ALL_RUNS, newest_first=True, page=10, lenient=True)
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
    # Without the runs on request between them: their number is not bounded.
    times = {*wanted.times}
    awaited_runs = (run for run in records if run.key.scheduled_at in times or run.covered > 1)
    near = [_small(run, results) for run in awaited_runs]
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
