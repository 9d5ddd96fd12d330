"""Repairs of the auditor: the due entries that it stores, for chains of jobs and for lost runs.
Pure, like `audit`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nextfire.domain.audit import Comparison, Missing
from nextfire.domain.due import FireEntry, ResumeEntry
from nextfire.domain.instants import MOMENT
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.schedule import UNTIMED

ChainEntry = FireEntry | ResumeEntry
"""The entry that continues the chain of a job: its next occurrence, or the end of its pause."""


def next_entry(job: Job, now: datetime) -> ChainEntry | None:
    """The chain entry that *job* should have if everything due by *now* was sent: for an ACTIVE job
    the FIRE entry of the first occurrence due later, for a PAUSED job the entry that ends its
    pause. None if it should have none.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    if job.state is JobState.PAUSED:
        return job.resume_entry()
    if job.state is not JobState.ACTIVE or job.definition.type in UNTIMED:
        return None
    at = job.next_after(now - job.definition.jitter_width)
    while at is not None and job.due_at(at) <= now:
        at = job.next_after(at)
    return None if at is None else job.entry_of(at)


def lost_part(missing: Missing, before: datetime) -> Missing | None:
    """The part of *missing* before *before*; None if that is empty."""
    if missing.first >= before:
        return None
    if missing.last < before:
        return missing
    part = missing.owner.stretch(first_of(missing), before - MOMENT)
    return replace(missing, last=part.last, count=part.count)


def first_of(missing: Missing) -> FireEntry:
    """The FIRE entry of the first occurrence in *missing*."""
    return missing.owner.fire_entry(missing.first, missing.owner.ordinal(missing.first))


def restored(
    job: Job,
    found: Comparison,
    following: ChainEntry,
    since: datetime,
    *,
    queue_is_empty: bool,
) -> ChainEntry:
    """The entry that repairs the chain of *job*, which has no entry: the first occurrence after the
    last recorded one, so that the misfire policy applies to the missed occurrences.

    If the queue is not empty, occurrences without a record may have been sent. Then the chain
    continues with *following*, the next future occurrence; a later audit finds the missing ones.
    """
    if not queue_is_empty or found.partial or isinstance(following, ResumeEntry):
        return following
    if job.definition.after:
        return following  # occurrences without a record may wait for their parents
    first = job.next_after(max(found.covered_to or since, since))
    if first is None or first >= following.occurs_at:
        return following
    return job.fire_entry(first, job.ordinal(first))
