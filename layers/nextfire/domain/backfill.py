"""Backfills: run past occurrences of a job, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from nextfire.dataclass import dataclass
from nextfire.domain.instants import MOMENT
from nextfire.domain.recurrence import occurrences
from nextfire.domain.schedule import Schedule

MOST = 1_000
"""Maximum number of occurrences of a backfill."""
AT_ONCE = 10
"""Maximum number of dispatched runs of a backfill that have not ended."""


class Order(StrEnum):
    """The order in which the occurrences of a backfill run."""

    OLDEST_FIRST = "OLDEST_FIRST"
    NEWEST_FIRST = "NEWEST_FIRST"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A requested backfill: the `count` occurrences from `first` to `last`, both included, of the
    schedule version `version`, which is 0 if the backfill was stopped. `backfill_id`
    identifies the backfill.
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
        """Up to `AT_ONCE` occurrences of *schedule*, starting with number *position* (from 1) in
        `order`; empty after the last one.

        Raises:
            InvalidInputError: The schedule cannot be read.
        """
        found = _between(schedule, self.first, self.last)
        ordered = found if self.order is Order.OLDEST_FIRST else found[::-1]
        return ordered[position - 1 : position - 1 + AT_ONCE]


@lru_cache(maxsize=64)
def _between(schedule: Schedule, first: datetime, last: datetime) -> tuple[datetime, ...]:
    """Cached, because a backfill in progress needs the list every few seconds."""
    found: list[datetime] = []
    for occurrence in occurrences(schedule, first - MOMENT):
        if occurrence.at > last or len(found) == MOST:
            break
        found.append(occurrence.at)
    return tuple(found)
