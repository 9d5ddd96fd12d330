"""Who goes next, where more is due than can be sent at once: the tenants take turns."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from datetime import datetime

from nextfire.domain.due import Slot, StoredEntry

DEFAULT_WEIGHT = 1

_Waiting = tuple[datetime, int, datetime, Slot, StoredEntry]


class FairQueue:
    """Due entries by weighted round robin over tenants; within a tenant by due second, then
    priority, then due instant.

    A tenant of weight *n* gives up to *n* entries before the next one's turn, so nobody waits for
    longer than one round, however much the others have.
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
        """When the next entry was due. There must be one."""
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
        """The next entry. There must be one."""
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
