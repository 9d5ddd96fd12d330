"""Leases, cursors and counts of watchers in memory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import datetime

from nextfire.domain.audit_pass import Audit
from nextfire.domain.instants import from_ms
from nextfire.domain.ports.control import CLOCK_AHEAD, Lease, cursors_to_set


class MemoryControlStore:
    """`ControlStore`."""

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}
        self.moved: dict[int, tuple[datetime, int]] = {}
        self.audits: dict[int | None, Audit] = {}
        self.taken: dict[str, tuple[datetime, int]] = {}
        self._lost: set[int] = set()
        self._spoilt = 0
        self._lock = threading.Lock()

    def spoil_lease(self, group: int) -> None:
        """Make the item of *group* undecodable; each call stores a different broken item."""
        self._spoilt += 1
        self.leases[group] = Lease("", 0, self._spoilt)

    def spoil_cursor(self, shard: int) -> None:
        """Make the item of *shard* undecodable."""
        self.moved.setdefault(shard, (from_ms(0), 0))
        self._lost.add(shard)

    def lease(self, group: int, *, consistent: bool = False) -> Lease | None:  # noqa: ARG002
        return self.leases.get(group)

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        with self._lock:
            stored = self.leases.get(group)
            same = (stored and (stored.epoch, stored.beat)) == (was and (was.epoch, was.beat))
            if not same:
                return stored == to
            self.leases[group] = to
            return True

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        with self._lock:
            stored = {
                shard: None if shard in self._lost else self.moved[shard][0]
                for shard in range(shards)
                if shard in self.moved
            }
            for shard, cursor in cursors_to_set(stored, shards, minute).items():
                self.moved[shard] = (cursor, 0)
                self._lost.discard(shard)

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        return {
            shard: self.moved[shard][0]
            for shard in shards
            if shard in self.moved and shard not in self._lost
        }

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        with self._lock:
            _, by = self.moved.get(shard, (minute, 0))
            if by > epoch and shard not in self._lost:
                return False
            self.moved[shard] = (minute, epoch)
            self._lost.discard(shard)
            return True

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        with self._lock:
            stored_minute, taken = self.taken.get(tenant, (minute, 0))
            if not minute <= stored_minute <= minute + CLOCK_AHEAD:
                stored_minute, taken = minute, 0
            granted = max(min(wanted, most - taken), 0)
            self.taken[tenant] = (stored_minute, taken + granted)
            return granted

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        stored_minute, taken = self.taken.get(tenant, (minute, 0))
        return taken if minute <= stored_minute <= minute + CLOCK_AHEAD else 0

    def spoil_taken(self, tenant: str) -> None:
        """Make the item of *tenant* undecodable."""
        self.taken.pop(tenant, None)

    def audit(self, part: int | None = None) -> Audit | None:
        return self.audits.get(part)

    def replace_audit(self, was: Audit | None, to: Audit, part: int | None = None) -> bool:
        with self._lock:
            if self.audits.get(part) != was:
                return self.audits.get(part) == to
            self.audits[part] = to
            return True
