"""Checks whether a draining job still has outstanding runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from nextfire.domain.audit import WAITS_AT_MOST, longest_run, owes_records, spans
from nextfire.domain.audit_pass import LOOK_BACK_AT_MOST
from nextfire.domain.ids import first_run_id
from nextfire.domain.instants import MOMENT
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, Trigger, runs_of_uid

LOOKED_AT_MOST = 2_000
"""Records that one call reads, the latest first."""
_SEEN_AFTER = timedelta(seconds=5)
"""How long after the request a watcher may still send a run: its reads are eventually consistent.
"""
_PAGE = 50


def has_outstanding(runs: RunStore, job: Job, now: datetime) -> bool:
    """Whether a job that was asked to drain still has outstanding work from before: a run that has
    not ended, or an occurrence without a record; or a run that a watcher sent, and that began,
    before that watcher saw the request. False for any other job, without a read.

    It looks back one day, for runs that wait in a queue, plus the maximum duration of a run; it
    reads up to `LOOKED_AT_MOST` records, and as many again of the backfill that ran until then.

    Raises:
        InvalidInputError: A schedule cannot be read.
    """
    asked_at = job.drain_asked_at
    if job.state is not JobState.PAUSED or asked_at is None:
        return False
    until = max(asked_at, job.effective_from)
    since = max(asked_at - WAITS_AT_MOST, now - LOOK_BACK_AT_MOST)
    looked_from = since - longest_run(job)
    found: list[Run] = []
    newest = runs.between(
        job.key, "0", first_run_id(until + _SEEN_AFTER), newest_first=True, page=_PAGE, lenient=True
    )
    looked_at = 0
    for run in islice(runs_of_uid(newest, job.uid, job.created_at), LOOKED_AT_MOST):
        looked_at += 1
        at, asked_for = run.key.scheduled_at, run.trigger is Trigger.MANUAL
        if not run.state.ended and (at <= asked_at or not asked_for):
            return True
        if not asked_for:
            found.append(run)
            if at < looked_from:  # it may be a range that extends up to here
                break
    if looked_at == LOOKED_AT_MOST and found:
        since = max(since, found[-1].key.scheduled_at)
    return owes_records(job.uid, spans(job, since, until), reversed(found)) or _backfills(runs, job)


def _backfills(runs: RunStore, job: Job) -> bool:
    """Whether the backfill that the pause ended still has runs that have not ended."""
    asked = job.backfill
    if asked is None:
        return False
    first, last = first_run_id(asked.first), first_run_id(asked.last + MOMENT)
    found = runs.between(job.key, first, last, newest_first=True, page=_PAGE, lenient=True)
    return any(
        run.request == asked.backfill_id and not run.state.ended
        for run in islice(found, LOOKED_AT_MOST)
    )
