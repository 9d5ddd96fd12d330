"""The occurrences of a job that are going to run, as the dispatcher will decide."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice, pairwise

from nextfire.domain.instants import cut
from nextfire.domain.job import Job
from nextfire.domain.misfire import decide_misfire
from nextfire.domain.occurrences import JobState, owned
from nextfire.domain.recurrence import occurrences
from nextfire.domain.schedule import Upcoming


def upcoming_runs(job: Job, after: datetime, count: int) -> list[Upcoming]:
    """Return up to *count* occurrences of *job* that are due after *after*, ordered by occurrence;
    none if the job is not ACTIVE. Occurrences that a user skipped are among them.

    With jitter, an occurrence can be due after a change of the schedule that came after it, and
    after the pause that it is part of. The misfire policy, and a relevancy window that is over when
    its turn comes, leave it out.

    Raises:
        InvalidInputError: A schedule is invalid.
    """
    if job.state is not JobState.ACTIVE:
        return []
    earlier = (_of_version(job.as_of(past), after, past.until) for past in job.replaced)
    found = chain(chain.from_iterable(earlier), _of_version(job, after, None))
    return list(islice(found, count))


def _of_version(owner: Job, after: datetime, until: datetime | None) -> Iterator[Upcoming]:
    """The occurrences of the schedule version of *owner*, which owns those up to *until*. None is
    due before the one before it: the due entry of an occurrence is stored when that of the one
    before it is dispatched.
    """
    # With jitter, an occurrence before `after` can be due after it.
    start = max(cut(after) - owner.definition.jitter_width, owner.effective_from)
    if owner.state is JobState.PAUSED or (until is not None and until <= start):
        return
    found = islice(occurrences(owner.schedule, start), owner.left_after(start))
    entries = ((each, owned(owner.fire_entry(each.at, 1), until)) for each in found)
    due_at = start
    for (occurrence, entry), (_, successor) in pairwise(chain(entries, [(None, None)])):
        if occurrence is None or entry is None:
            return
        due_at = max(due_at, entry.at)
        missed, _ = decide_misfire(entry, owner, successor, due_at)
        if due_at > after and (missed is None or occurrence.at in owner.skips):
            yield Upcoming(occurrence, due_at)
