"""Whether the id of a deleted job may be used again."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.errors import ConflictError
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.idempotent_requests import IdempotentRequest


def check_all_sent(job: Job, unsent: FindUnsent, now: datetime) -> None:
    """Check that all occurrences of *job*, which is CANCELLED, are sent.

    Raises:
        ConflictError: They may not be.
    """
    due_at = (job.as_of(past).all_due_at(past.until) for past in job.replaced)
    all_due_at = max(due_at, default=now)
    if all_due_at > now:
        raise ConflictError(
            f"The deleted job {job.key.job_id!r} has occurrences from before its deletion"
            f" that are due by {isoformat(all_due_at)}",
            "Try again after that, or use another id.",
        )
    if unsent.of(job.key, job.uid, now) != []:
        raise ConflictError(
            f"Due occurrences of the deleted job {job.key.job_id!r} are not on record yet",
            "Try again in a moment, or use another id: the watcher is behind, or the"
            " pool's queue is full.",
        )


def check_made_before(former: Job, asked: IdempotentRequest) -> None:
    """Reject the repeated request *asked* if its job may already have been created and deleted
    before *former*: a deleted job must not reappear by itself.

    Raises:
        ConflictError: It may.
    """
    if former.created_at > asked.at:
        raise ConflictError(
            f"Job {former.key.job_id!r} was created and deleted after the first such request",
            "If you still want the job, use a new Idempotency-Key.",
        )
