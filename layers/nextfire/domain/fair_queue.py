"""Fair dispatch order: tenants take turns if more entries are due than can be sent at once."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from datetime import datetime

from nextfire.domain.due import Slot, StoredEntry

DEFAULT_WEIGHT = 1

_Waiting = tuple[datetime, int, datetime, Slot, StoredEntry]


class FairQueue:
    """A queue of due entries: weighted round robin across tenants; within a tenant ordered by due
    second, then priority, then due instant.

    A tenant of weight *n* sends up to *n* entries per turn. So a tenant waits for at most one
    round, however large the backlog of the others is.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._waiting: dict[str, list[_Waiting]] = {}
        self._turns: deque[str] = deque()
        self._left = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_at(self) -> datetime:
        """The due instant of the next entry. The queue must not be empty."""
        return self._waiting[self._turns[0]][0][2]

    def push(self, stored: StoredEntry) -> None:
        entry = stored.entry
        tenant = entry.job.tenant
        if tenant not in self._waiting:
            self._waiting[tenant] = []
            self._turns.append(tenant)
        second = entry.at.replace(microsecond=0)
        waiting = (second, entry.rank, entry.at, stored.slot, stored)
        heapq.heappush(self._waiting[tenant], waiting)
        self._count += 1

    def pop(self) -> StoredEntry:
        """Remove and return the next entry. The queue must not be empty."""
        tenant = self._turns[0]
        self._left = self._left or max(self._weights.get(tenant, DEFAULT_WEIGHT), 1)
        waiting = self._waiting[tenant]
        *_, stored = heapq.heappop(waiting)
        self._left -= 1
        self._count -= 1
        if not waiting:
            del self._waiting[tenant]
            self._turns.popleft()
            self._left = 0
        elif not self._left:
            self._turns.rotate(-1)
        return stored
