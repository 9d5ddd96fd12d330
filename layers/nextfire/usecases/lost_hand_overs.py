"""Finds runs that ended and were not handed over to a child: their executor died, and the message
was purged before another one received it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice

from nextfire.domain.audit import GRACE, RECORDS_AT_MOST, WAITS_AT_MOST
from nextfire.domain.awaited import longest_wait
from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import JobKey, first_run_id
from nextfire.domain.job import Job
from nextfire.domain.message import HAND_OVER_DISPATCH
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import ScheduleType
from nextfire.usecases.timed_runs import JOIN_END_DISPATCH

EDGES_AT_MOST = 100
"""Maximum number of parents of a job whose runs one visit reads."""
PARENT_RUNS_AT_MOST = 10 * RECORDS_AT_MOST
"""Maximum number of runs of all parents together that one visit reads: some minutes."""


def lost_hand_overs(
    jobs: JobStore, runs: RunStore, child: Job, since: datetime, now: datetime
) -> Iterator[tuple[Job, Run]]:
    """Yield the runs of parents of *child* that ended so long ago that its run at their logical
    time must have a record, and has none; with their jobs. *since*: the start of the audited
    period. Parents that do not decode are left out.

    A run that is found although it was handed over does no harm: to repeat it changes nothing.

    Raises:
        UnavailableError: A store did not answer.
    """
    if child.definition.type is not ScheduleType.AFTER or child.state is JobState.CANCELLED:
        return
    edges = child.definition.after
    waits = WAITS_AT_MOST + GRACE
    waits += longest_wait(child) if len(edges) > 1 else edges[0].delay
    first, last = since - waits, now - waits
    recorded, all_read_until = _recorded(runs, child, first, now)
    until, read = min(last, all_read_until), 0
    for edge in edges[:EDGES_AT_MOST]:
        parent = None
        with suppress(UndecodableError):
            parent = jobs.get(JobKey(child.key.tenant, edge.job))
        if parent is None or child.key.job_id not in parent.children:
            continue
        for run in islice(_between(runs, parent, first, until), PARENT_RUNS_AT_MOST - read):
            read += 1
            ended_at = run.finished_at
            if run.key.uid != parent.uid or ended_at is None:
                continue
            if not child.updated_at <= ended_at <= last:
                continue  # not yet, or its edges may have been different
            if _is_handed_over(parent, run) and run.key.scheduled_at not in recorded:
                yield parent, run


def repeated(lost: Iterable[tuple[Job, Run]], now: datetime) -> list[DispatchEntry]:
    """The entries that hand the runs *lost* over again."""
    return [parent.dispatch_entry(run.key, now, HAND_OVER_DISPATCH) for parent, run in lost]


def join_ends(child: Job, lost: Iterable[tuple[Job, Run]], now: datetime) -> list[DispatchEntry]:
    """The entries that end the joins of *child*, if marks of other parents were lost as well."""
    if len(child.definition.after) == 1:
        return []
    keys = {child.run_key(run.key.scheduled_at) for _, run in lost}
    end, at = JOIN_END_DISPATCH, now + GRACE
    return [child.dispatch_entry(key, at, end) for key in sorted(keys, key=str)]


def _recorded(
    runs: RunStore, child: Job, first: datetime, last: datetime
) -> tuple[set[datetime], datetime]:
    """The logical times of the runs of *child* from *first* to *last* that have a record; and until
    when all records were read.
    """
    # Not the records: many visits at the same time share the auditor's memory.
    found: set[datetime] = set()
    for number, run in enumerate(islice(_between(runs, child, first, last), RECORDS_AT_MOST), 1):
        if run.key.uid == child.uid:
            found.add(run.key.scheduled_at)
        if number == RECORDS_AT_MOST:
            return found, run.key.scheduled_at
    return found, last


def _between(runs: RunStore, job: Job, first: datetime, last: datetime) -> Iterator[Run]:
    """The runs of *job*, and of earlier ones with its id, from *first* to *last*."""
    begin, end = first_run_id(first), first_run_id(last)
    return runs.between(job.key, begin, end, page=1_000, lenient=True)


def _is_handed_over(job: Job, run: Run) -> bool:
    """Whether an executor certainly has to hand over *run*: not what a watcher skipped, nor what
    was cancelled or skipped on request before it started.
    """
    if not run.state.ended or run.covered > 1:
        return False
    by_executor = run.pool is not None or job.definition.type is ScheduleType.AFTER
    skipped = run.state is RunState.SKIPPED and not run.request
    return bool(run.attempts) or (skipped and by_executor)
