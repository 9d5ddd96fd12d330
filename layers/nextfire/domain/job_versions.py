"""Which version of a job an instant belongs to, and whether it is one of its occurrences."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import MOMENT
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState


def version_at(job: Job, at: datetime) -> Job | None:
    """*job* as of the version that an occurrence at *at* belongs to; *job* itself if that is the
    current one; None if the version is unknown.
    """
    if at > job.effective_from:
        return None if job.state is JobState.CANCELLED else job
    past = next((p for p in job.replaced if p.effective_from < at <= p.until), None)
    return None if past is None else job.as_of(past)


def has_occurrence(owner: Job, at: datetime) -> bool | None:
    """Whether the version *owner* has an occurrence at *at*; None if that is unknown."""
    try:
        return owner.next_after(at - MOMENT) == at and owner.allows(owner.ordinal(at))
    except InvalidInputError:
        return None  # the time zone has been removed
