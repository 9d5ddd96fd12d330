"""Start and stop backfills."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from nextfire.dataclass import dataclass, replace
from nextfire.domain.backfill import MOST, Backfill, Order
from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import MOMENT, cut, isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.recurrence import next_instant
from nextfire.domain.schedule import UNTIMED
from nextfire.domain.stretch import stretch
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.job_revisions import check_version, contended, living_job
from nextfire.usecases.request_runs import check_pool

_TRIES = 5  # of a change that races with other changes of the same job
_NO_LIMIT = 10**12


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """The occurrences from `first` (inclusive) to `to` (exclusive): all of them, or none if there
    are more than `at_most` (1 to `MOST`).
    """

    first: datetime
    to: datetime
    at_most: int = MOST
    order: Order = Order.OLDEST_FIRST
    reason: str | None = None


class ManageBackfills:
    """Backfills of jobs. A job has one backfill at a time. The watcher continues it, from one due
    entry to the next. *pools*: those whose jobs may start one.
    """

    def __init__(self, jobs: JobStore, unsent: FindUnsent, pools: Collection[str]) -> None:
        self._jobs = jobs
        self._unsent = unsent
        self._pools = pools

    def begin(
        self,
        key: JobKey,
        wanted: BackfillRange,
        *,
        backfill_id: str,
        asked_at: datetime,
        now: datetime,
        expected: Collection[str] | None = None,
    ) -> tuple[Job, Backfill]:
        """Start a backfill: run past occurrences that have no record. They are the occurrences that
        the job's current schedule has, or would have had. Occurrences that the schedule itself is
        still to send are not included.

        Args:
            key: The job.
            wanted: The occurrences.
            backfill_id: Id of the request. A repetition finds the same backfill.
            asked_at: When the request was first sent.
            now: The current instant.
            expected: See `ManageJobs`.

        Returns:
            The job, and its backfill.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: It is PAUSED, has no schedule, or has an active backfill; its pool no
                longer exists; or it is unknown which of its occurrences were sent.
            InvalidInputError: No such occurrence exists, or there are more than `at_most`.
            ChangedError: The job is not in a version of *expected*.
        """
        for _ in range(_TRIES):
            job = living_job(self._jobs, key)
            backfill = job.backfill  # also if it was stopped since
            if backfill is not None and backfill.backfill_id == backfill_id:
                return job, backfill
            check_version(job, expected)
            _check_may_begin(job)
            check_pool(job, self._pools)
            first, last, count = self._select(job, wanted, now)
            asked = Backfill(
                backfill_id,
                job.schedule_version,
                first,
                last,
                count,
                wanted.order,
                cut(asked_at),
                wanted.reason,
            )
            begun = replace(job.revised(now), backfill=asked)
            if self._jobs.update(begun, begun.backfill_entry(1), now):
                return begun, asked
        raise contended(key)

    def stop(self, key: JobKey, *, now: datetime, expected: Collection[str] | None = None) -> Job:
        """Stop the job's backfill: no further occurrence starts. Started runs are not affected.

        Raises:
            NotFoundError: The job does not exist, is CANCELLED, or has no active backfill.
            ChangedError: The job is not in a version of *expected*.
        """
        for _ in range(_TRIES):
            job = living_job(self._jobs, key)
            check_version(job, expected)
            asked = job.backfilling
            if asked is None:
                raise NotFoundError("backfill of job", key.job_id, "There is nothing to stop.")
            stopped = replace(job.revised(now), backfill=replace(asked, version=0))
            if self._jobs.update(stopped, None, now):
                return stopped
        raise contended(key)

    def _select(
        self, job: Job, wanted: BackfillRange, now: datetime
    ) -> tuple[datetime, datetime, int]:
        """The first and the last of the *wanted* occurrences, and their number."""
        if wanted.first >= wanted.to:
            raise InvalidInputError(
                "from",
                isoformat(wanted.first),
                f"not before `to`, which is {isoformat(wanted.to)}",
                "Swap `from` and `to`.",
            )
        schedule = job.past_schedule(wanted.first)
        first = next_instant(schedule, wanted.first - MOMENT)
        until = self._until(job, wanted, now)
        if first is None or first > until:
            raise InvalidInputError(
                "from",
                isoformat(wanted.first),
                f"the job has no past occurrence from there to {isoformat(wanted.to)}",
                "Look at its schedule: POST /v1/schedules/preview with `after`.",
            )
        found = stretch(schedule, first, until, at_most=_NO_LIMIT)
        if found.count > wanted.at_most:
            problem = (
                f"from {isoformat(first)} to {isoformat(found.last)} there are {found.count}"
                " occurrences"
            )
            if wanted.at_most < MOST:
                remedy = f"Narrow `from` and `to`, or raise `max`, to {MOST} at most."
                raise InvalidInputError("max", wanted.at_most, problem, remedy)
            remedy = f"Narrow `from` and `to`: a backfill runs {MOST} at most."
            raise InvalidInputError("from", isoformat(wanted.first), problem, remedy)
        return first, found.last, found.count

    def _until(self, job: Job, wanted: BackfillRange, now: datetime) -> datetime:
        """The latest instant up to which the schedule itself has nothing left to send. A range
        record that the schedule has yet to write must be written before the backfill's records.
        """
        until = min(wanted.to - MOMENT, cut(now) - job.definition.jitter_width - MOMENT)
        if until > job.counted_since and (last := job.last_allowed(until)) is not None:
            until = min(until, last)
        if until <= job.created_at:
            return until
        unsent = self._unsent.of(job.key, job.uid, now)
        if unsent is None:
            raise ConflictError(
                "It is unknown what the job's schedule has sent: the watcher is behind",
                "Try again in a moment, or end before the job was created, at"
                f" {isoformat(job.created_at)}.",
            )
        return min([until, *(entry.occurs_at - MOMENT for entry in unsent)])


def _check_may_begin(job: Job) -> None:
    """Check that a backfill of *job* may start now.

    Raises:
        ConflictError: It may not.
    """
    active = job.backfilling
    if active is not None:
        raise ConflictError(
            f"The job has an active backfill of {active.count} occurrences from"
            f" {isoformat(active.first)} to {isoformat(active.last)}",
            "Wait until it ends, or stop it: DELETE /v1/jobs/{jobId}/backfill.",
        )
    if job.state is JobState.PAUSED:
        raise ConflictError("The job is PAUSED", "Resume it first: a pause ends a backfill.")
    if job.definition.type in UNTIMED:
        raise ConflictError(
            f"A job of type {job.definition.type} has no occurrences",
            "Run it now: POST /v1/jobs/{jobId}/run.",
        )
