"""The next occurrences of a schedule, with jitter and `maxRuns`."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from nextfire.domain.instants import cut
from nextfire.domain.jitter import jitter
from nextfire.domain.recurrence import occurrences
from nextfire.domain.schedule import Schedule, Upcoming
from nextfire.domain.stretch import count_occurrences


def upcoming(
    schedule: Schedule,
    after: datetime,
    count: int,
    *,
    max_runs: int | None = None,
    jitter_key: str = "",
    jitter_width: timedelta = timedelta(),
) -> list[Upcoming]:
    """Up to *count* next occurrences that are due after *after*, ordered by occurrence and limited
    to the first *max_runs* since `effective_from`. None is due before the one before it: the due
    entry of an occurrence is stored when that of the one before it is dispatched.

    Raises:
        InvalidInputError: The schedule is invalid.
    """
    # With jitter, an occurrence before `after` can be due after it.
    start = max(cut(after) - jitter_width, schedule.effective_from)
    left = None
    if max_runs is not None:
        left = max_runs - count_occurrences(schedule, start, at_most=max_runs)
    found: list[Upcoming] = []
    due_at = start
    for occurrence in islice(occurrences(schedule, start), left):
        due_at = max(due_at, occurrence.at + jitter(jitter_key, occurrence.at, jitter_width))
        if due_at > after:
            found.append(Upcoming(occurrence, due_at))
        if len(found) == count:
            break
    return found
