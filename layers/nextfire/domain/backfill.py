"""A backfill: occurrences of the past that are to run after all, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from nextfire.domain.schedule import Schedule, occurrences

MOST = 1_000
"""Occurrences of one backfill."""
AT_ONCE = 10
"""Runs of one backfill that may be on their way at a time."""
_MOMENT = timedelta(milliseconds=1)


class Order(StrEnum):
    """Which of a backfill's occurrences run first."""

    OLDEST_FIRST = "OLDEST_FIRST"
    NEWEST_FIRST = "NEWEST_FIRST"


@dataclass(frozen=True, slots=True)
class Backfill:
    """What was asked for: the `count` occurrences from `first` to `last`, both included, of the
    job's schedule as it was in `version`; 0 if it was stopped. `backfill_id` tells it from others.
    """

    backfill_id: str
    version: int
    first: datetime
    last: datetime
    count: int
    order: Order
    asked_at: datetime
    reason: str | None = None

    def batch(self, schedule: Schedule, position: int) -> Sequence[datetime]:
        """The up to `AT_ONCE` occurrences of *schedule* from the *position*-th (from 1) on, in
        `order`; none after the last.

        Raises:
            InvalidInputError: The schedule cannot be read.
        """
        found = _between(schedule, self.first, self.last)
        ordered = found if self.order is Order.OLDEST_FIRST else found[::-1]
        return ordered[position - 1 : position - 1 + AT_ONCE]


@lru_cache(maxsize=64)
def _between(schedule: Schedule, first: datetime, last: datetime) -> tuple[datetime, ...]:
    """Asked for again every few seconds, while a backfill goes on."""
    found: list[datetime] = []
    for occurrence in occurrences(schedule, first - _MOMENT):
        if occurrence.at > last or len(found) == MOST:
            break
        found.append(occurrence.at)
    return tuple(found)
