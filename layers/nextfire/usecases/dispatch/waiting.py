"""Postpones due entries that have to wait: when they are tried again, and in which bucket."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum

from nextfire.domain.due import PARKED_AT_MOST, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.quotas import TenantQuotas
from nextfire.usecases.dispatch.deletions import Deletions
from nextfire.usecases.dispatch.holding import HeldEntries
from nextfire.usecases.dispatch.parked import ParkedEntries, QuotaSpread

_NEAR = 1_000
"""Waiting entries per tenant that stay in their buckets in the first minute; more are parked."""
_TRIES_AT_ONCE = 100
"""Parked entries, of all tenants together, that are tried at a time after a try failed. Each try
costs a read of the job; without a bound, the tries would cost more than moving the entries.
"""
_PARKED_RETRY_AFTER = timedelta(seconds=2)
"""Minimum time between two tries of a parked entry."""
_QUOTA_KNOWN_AFTER = timedelta(seconds=5)
"""How long after the start of a minute it is known whether its due runs use up its quota."""


class WaitReason(Enum):
    """Why entries wait. Each value has the seconds until the next try, and whether the entry is
    *held back*: only its pool, job or tenant delays it, so its lateness is counted separately.
    """

    NO_ROOM = (1, True)
    NO_TURN = (5, True)
    NO_QUOTA = (60, True)  # until the next minute
    NO_ANSWER = (2, False)
    NO_POOL = (30, False)
    NO_TIME = (0.1, False)
    BACKFILL = (5, False)
    BROKEN = (60, False)

    def __init__(self, seconds: float, held: bool) -> None:  # noqa: FBT001 — see the lines above
        self.after = timedelta(seconds=seconds)
        self.held = held


class Postponer:
    """Postpones entries. Used by several threads.

    An entry that waits for long is *parked*: moved to a bucket as far ahead as it is late. Each
    move doubles the time to the next one, and no extra state is stored. `wanted` returns the
    tenants whose parked entries are read before their minute, so that they continue as soon as
    possible.
    """

    def __init__(
        self,
        due: DueStore,
        holding: HeldEntries,
        parked: ParkedEntries,
        deletions: Deletions,
        clock: Clock,
        quotas: TenantQuotas,
    ) -> None:
        self._due = due
        self._holding = holding
        self._parked = parked
        self._deletions = deletions
        self._clock = clock
        self._quotas = quotas
        self._lock = threading.Lock()
        self._near: dict[Slot, str] = {}
        self._waiting: Counter[str] = Counter()  # as of the last poll, plus those added since
        self._allowed: dict[str, int] = {}
        self._tries = 0
        self._tried: dict[str, int] = {}  # by tenant, the sequence number of its last try
        self._min_tries = _TRIES_AT_ONCE
        self._no_quota_until: dict[str, datetime] = {}
        self._spread = QuotaSpread()

    def wanted(self, now: datetime) -> Mapping[str, int]:
        """By tenant, how many parked entries may be tried now. Called once per poll. The tenants
        that have not been tried for the longest time come first.

        The number doubles each time, as long as all entries that are tried continue.
        """
        tenants = self._parked.tenants
        with self._lock:
            self._min_tries = max(_TRIES_AT_ONCE // max(len(tenants), 1), 1)
            self._waiting = waiting = self._count()
            for tenant in tenants - waiting.keys():
                self._allowed[tenant] = min(2 * self._allowed.get(tenant, self._min_tries), _NEAR)
            for tenant in self._allowed.keys() - tenants:
                del self._allowed[tenant]
            in_order = sorted(tenants, key=lambda tenant: (self._tried.get(tenant, 0), tenant))
            found = {tenant: self._left(tenant, waiting, now) for tenant in in_order}
            return {tenant: left for tenant, left in found.items() if left > 0}

    def admits(self, stored: StoredEntry, now: datetime) -> bool:
        """Whether to hold *stored*, an unknown entry: a parked one only if it may be tried now."""
        if not stored.is_parked(now):
            return True
        tenant = stored.entry.job.tenant
        with self._lock:
            if self._left(tenant, self._waiting, now) <= 0:
                return False
            self._tries += 1
            self._tried[tenant] = self._tries
            self._waiting[tenant] += 1
            self._near[stored.slot] = tenant
            return True

    def _left(self, tenant: str, waiting: Counter[str], now: datetime) -> int:
        if now < self._no_quota_until.get(tenant, now):
            return 0
        return self._allowed.get(tenant, self._min_tries) - waiting[tenant]

    def _count(self) -> Counter[str]:
        """By tenant, the number of entries that are being tried or were tried and wait. Looks at
        each of them.
        """
        self._near = {s: t for s, t in self._near.items() if self._holding.waits(s)}
        return Counter(self._near.values())

    def postpone(self, entries: Sequence[StoredEntry], why: WaitReason) -> None:
        """Try *entries* again later.

        Entries in past buckets move to the present one: otherwise an entry that cannot be sent
        would hold back the cursor, and every poll would read all buckets since. Three kinds are
        parked: entries held back for more than a minute, entries above a tenant's limit of frequent
        retries, and entries that wait for the quota of a later minute. Parked entries stay where
        they are.
        """
        if not entries:
            return
        now = self._clock.now()
        near, far = self._partition(entries, why, now)
        present = bucket_name(floor_minute(now), 0)
        self._move([s for s in near if s.slot.bucket < present], now, why)
        for minute, parked in far.items():
            self._move(parked, minute, why)
            self._parked.note(minute, {s.entry.job.tenant for s in parked})
        unmarked = [s for s in near if why.held and not s.entry.held and s.slot.bucket >= present]
        if unmarked:
            with suppress(UnavailableError):  # the mark only explains the lateness
                self._due.mark_held(unmarked)

    def _partition(
        self, entries: Sequence[StoredEntry], why: WaitReason, now: datetime
    ) -> tuple[list[StoredEntry], Mapping[datetime, list[StoredEntry]]]:
        """Split *entries* into those that wait where they are, which are ignored for a while; and
        those to park, by the minute of their new bucket.
        """
        next_minute = floor_minute(now) + MINUTE
        near: list[StoredEntry] = []
        far: dict[datetime, list[StoredEntry]] = defaultdict(list)
        with self._lock:
            for stored in entries:
                tenant = stored.entry.job.tenant
                is_new = stored.slot not in self._near
                if why is WaitReason.NO_QUOTA:
                    self._no_quota_until[tenant] = next_minute + _QUOTA_KNOWN_AFTER
                elif why.held:
                    self._allowed[tenant] = self._min_tries
                # An entry in a future bucket is parked already, or was found by the look-ahead.
                if stored.slot.minute < next_minute and (
                    why is WaitReason.NO_QUOTA
                    or (why.held and now - stored.entry.at >= MINUTE)
                    or (is_new and self._waiting[tenant] >= _NEAR)
                ):
                    far[self._minute_for(stored.entry, why, now)].append(stored)
                    continue
                near.append(stored)
                self._near[stored.slot] = tenant
                self._waiting[tenant] += is_new
            for stored in near:
                wait = max(why.after, _PARKED_RETRY_AFTER) if stored.is_parked(now) else why.after
                until = next_minute if why is WaitReason.NO_QUOTA else now + wait
                self._holding.ignore([stored.slot], until)
        return near, far

    def _minute_for(self, entry: DueEntry, why: WaitReason, now: datetime) -> datetime:
        """The minute of the bucket to park *entry* in."""
        if why is WaitReason.NO_QUOTA and not entry.held:
            rate = self._quotas.of(entry.job.tenant).runs_per_minute or _NEAR
            return self._spread.minute_for(entry.job.tenant, rate, now)
        late = now - entry.at if why.held else MINUTE
        return floor_minute(now + min(max(late, MINUTE), PARKED_AT_MOST))

    def _move(self, entries: list[StoredEntry], at: datetime, why: WaitReason) -> None:
        """Move *entries* to the bucket for writes at *at*, which differs from their bucket. What a
        throttled table does not delete is deleted later: it is not moved again to yet another one.
        """
        if entries:
            moving = dict.fromkeys(_mark_held(s.entry) if why.held else s.entry for s in entries)
            moved = self._due.put(moving, at)
            left = [stored.slot for stored in entries if stored.entry in moved]
            self._deletions.delete(left)
            with self._lock:
                for slot in left:  # its copy waits in another slot
                    if tenant := self._near.pop(slot, None):
                        self._waiting[tenant] -= 1


def _mark_held(entry: DueEntry) -> DueEntry:
    return entry if entry.held else replace(entry, held=True)
