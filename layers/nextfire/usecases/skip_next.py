"""Skip the next occurrence of a job, and undo that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.errors import ConflictError, NotFoundError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut, isoformat
from nextfire.domain.job import MAX_SKIPS, Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore, Written
from nextfire.domain.run import Run
from nextfire.usecases.job_revisions import check_version, contended, living_job

SKIPPED = "skipped on request"
"""Default reason."""
UNSKIP_BEFORE = timedelta(seconds=60)
"""How long before it is due a skip can still be undone. No request takes that long."""
_SKIP = "skip"
_TRIES = 5  # of a change that races with other changes of the same job


@dataclass(frozen=True, slots=True)
class SkipNext:
    """Skips occurrences. The record of the skip and the job are written together."""

    jobs: JobStore
    runs: RunStore
    clock: Clock

    def skip_next(
        self,
        key: JobKey,
        reason: str | None,
        *,
        asked_at: datetime | None = None,
        expected: Collection[str] | None = None,
    ) -> Job:
        """Skip the job's next occurrence: its record says so before it is due.

        A request that is repeated before that is due skips the same occurrence. A repetition with
        *asked_at*, when the request was first sent, does so even later: if any occurrence after
        *asked_at* is skipped, by whichever request, nothing changes.

        Raises:
            NotFoundError: The job does not exist, or it is CANCELLED.
            ConflictError: It is not ACTIVE, has no next occurrence, or that has a record already.
            ChangedError: The job is not in a version of *expected*.
        """
        for _ in range(_TRIES):
            now = self.clock.now()
            job = living_job(self.jobs, key)
            # Possibly by a repetition of this request that was processed later than the first.
            if asked_at is not None and any(at > asked_at for at in job.skips):
                return job
            check_version(job, expected)
            if job.state is not JobState.ACTIVE:
                raise ConflictError(
                    f"The job is {job.state}", "Only an ACTIVE job has a next occurrence to skip."
                )
            entry = job.next_entry(now)
            if entry is None:
                raise ConflictError("The job has no next occurrence", "There is nothing to skip.")
            at = entry.occurs_at
            if at in job.skips:
                return job
            run = replace(
                Run.skipped(job.run_key(at), reason or SKIPPED, cut(now)),
                request=_SKIP,
                request_reason=reason,
            )
            skips = (*job.skips, at)[-MAX_SKIPS:]
            skipping = replace(job.revised(now), skips=skips)
            written = self.runs.skip_next(run, skipping)
            if written is Written.DONE:
                return skipping
            if written is Written.REFUSED:
                raise ConflictError(
                    f"Its occurrence at {isoformat(at)} already has a record",
                    f"See {run.key.execution_id}, and cancel it if it runs.",
                )
        raise contended(key)

    def unskip(self, key: JobKey, *, expected: Collection[str] | None = None) -> Job:
        """Undo `skip_next`, so that the occurrence runs.

        Raises:
            NotFoundError: The job does not exist, it is CANCELLED, or no future occurrence is
                skipped.
            ConflictError: The occurrence is due in less than `UNSKIP_BEFORE`.
            ChangedError: The job is not in a version of *expected*.
        """
        for _ in range(_TRIES):
            now = self.clock.now()
            job = living_job(self.jobs, key)
            check_version(job, expected)
            at = next((at for at in reversed(job.skips) if at > now), None)
            if at is None:
                raise NotFoundError(
                    "skipped occurrence of job", key.job_id, "There is nothing to undo."
                )
            # A due run may be sent, found SKIPPED and finished during this request.
            if job.due_at(at) < now + UNSKIP_BEFORE:
                raise ConflictError(
                    f"Its occurrence at {isoformat(at)} is due in less than"
                    f" {UNSKIP_BEFORE.seconds} s: too late",
                    "Run the job now instead: POST /v1/jobs/{jobId}/run.",
                )
            skips = tuple(each for each in job.skips if each != at)
            skipping = replace(job.revised(now), skips=skips)
            written = self.runs.unskip(job.run_key(at), skipping)
            if written is Written.DONE:
                return skipping
            if written is Written.REFUSED:
                raise ConflictError(
                    f"The record of the occurrence at {isoformat(at)} is not a requested skip",
                    "See the job's executions.",
                )
        raise contended(key)
