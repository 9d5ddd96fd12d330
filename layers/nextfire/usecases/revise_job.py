"""Stores the next revision of a job, whatever other requests do to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from nextfire.domain.due import DueEntry
from nextfire.domain.errors import ConflictError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import MAX_REPLACED, MAX_REPLACED_BYTES, Job, Replaced, bytes_of
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.job_revisions import check_version, contended, living_job

TRIES = 5
"""Maximum number of tries of a change that races with other changes of the same job."""


class ReviseJob:
    """Reads a job, and stores what a change makes of it, with its due entry."""

    def __init__(self, jobs: JobStore, limits: Limits, unsent: FindUnsent) -> None:
        self._jobs = jobs
        self._limits = limits
        self._unsent = unsent

    def revise(
        self,
        key: JobKey,
        next_revision: Callable[[Job], tuple[Job, DueEntry | None] | None],
        expected: Collection[str] | None = None,
        *,
        again: bool = False,
    ) -> Job:
        """Store the result of *next_revision* for the job; None: leave the job unchanged. It is
        called again if another change wins the race. *expected*, *again*: as for `ManageJobs`.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ChangedError: It is in no version of *expected*.
            ConflictError: Too many previous schedules still have occurrences that are due and not
                sent.
            QuotaUsedUpError: It had ended, and the tenant has reached its maximum of jobs.
        """
        for _ in range(TRIES):
            job = living_job(self._jobs, key)
            if again and next_revision(job) is None:
                return job
            check_version(job, expected)
            revised = next_revision(job)
            if revised is None:
                return job
            most = self._limits.quotas.of(key.tenant).jobs
            counted = not revised[0].state.ended and (job.counted or most is not None)
            changed = self._pruned(replace(revised[0], counted=counted))
            written = self._jobs.update(
                changed,
                revised[1],
                changed.updated_at,
                counts=int(counted) - int(job.counted),
                # A job that is older than the quota is not rejected.
                most=most if job.state.ended else None,
            )
            if written:
                return changed
        raise contended(key)

    def _pruned(self, job: Job) -> Job:
        """*job*, ready to be stored. If it remembers many versions, those whose occurrences are all
        sent are removed. A deletion is the last change and always has room.
        """
        replaced = job.replaced
        if job.state is JobState.CANCELLED or _has_room(replaced):
            return job
        unsent = self._unsent.of(job.key, job.uid, job.updated_at)
        while unsent is not None and not _has_room(replaced):
            if not job.is_over(replaced[0], unsent, job.updated_at):
                break
            replaced = replaced[1:]
        if len(replaced) > 1 and bytes_of(replaced) > MAX_REPLACED_BYTES:
            raise ConflictError(
                f"Occurrences of the last {len(replaced)} schedules are due and not dispatched yet",
                "Try again in a moment: the watcher is behind, or the pool's queue is full.",
            )
        return replace(job, replaced=replaced)


def _has_room(replaced: tuple[Replaced, ...]) -> bool:
    """Whether *replaced* is within the limits; the latest version is always kept."""
    few = len(replaced) <= MAX_REPLACED and bytes_of(replaced) <= MAX_REPLACED_BYTES
    return few or len(replaced) == 1
