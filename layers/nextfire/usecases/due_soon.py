"""Whether anything is due soon in the shards of a watcher group."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore

_BEHIND = 5 * MINUTE
"""Distance of a cursor from which the buckets after it are assumed to have entries."""


@dataclass(frozen=True, slots=True)
class DueSoon:
    """Looks for entries of `shards` from their cursors on. Any watcher, or standby, may ask."""

    due: DueStore
    control: ControlStore
    executor: Executor
    shards: Collection[int]

    def any(self, now: datetime, ahead: timedelta, *, consistent: bool = False) -> bool:
        """Whether an entry is due until *now* + *ahead*, or may be.

        Args:
            now: The time.
            ahead: How far to look.
            consistent: See every entry that was acknowledged before the call.

        Raises:
            UnavailableError: A store did not answer.
        """
        cursors = self.control.cursors(self.shards)
        if len(cursors) < len(self.shards) or min(cursors.values()) < now - _BEHIND:
            return True
        until = now + ahead
        asked = [
            (minute, shard)
            for shard, cursor in cursors.items()
            for minute in _minutes(min(cursor, floor_minute(now)), until)
        ]

        def found(bucket: tuple[datetime, int]) -> bool:
            minute, shard = bucket
            before = until if minute + MINUTE > until else None
            entries = self.due.read(minute, shard, before=before, consistent=consistent, page=1)
            return next(entries, None) is not None

        return any([*self.executor.map(found, asked)])


def _minutes(first: datetime, until: datetime) -> list[datetime]:
    count = (floor_minute(until) - first) // MINUTE + 1
    return [first + n * MINUTE for n in range(count)]
