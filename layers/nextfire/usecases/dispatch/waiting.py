"""What is due and has to wait stays in the table: when it is looked at again, and where."""

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
from nextfire.domain.ports import Clock, DueStore
from nextfire.domain.quotas import TenantQuotas
from nextfire.usecases.dispatch.holding import Holding
from nextfire.usecases.dispatch.parked import Parked, Spread

_NEAR = 1_000
"""Entries of a tenant that wait in their buckets, in the first minute; more are parked."""
_LOOKS = 100
"""Parked entries, of all tenants together, that are tried at a time after a try was in vain. Each
try costs a read of the job; without a bound, these would cost more than the moves.
"""
_PARKED_AGAIN = timedelta(seconds=2)
"""How long a parked entry is left alone at least."""
_QUOTA_SEEN_AFTER = timedelta(seconds=5)
"""How long after a minute's begin it is known whether its quota is used up by what is due in it."""


class Why(Enum):
    """Why entries wait; the seconds until they are looked at again; whether they are *held back*:
    due, and only their pool, job or tenant is in the way, so their lateness counts apart.
    """

    NO_ROOM = (1, True)
    NO_TURN = (5, True)
    NO_QUOTA = (60, True)  # to the next minute
    NO_ANSWER = (2, False)
    NO_TIME = (0.1, False)
    BACKFILL = (5, False)
    BROKEN = (60, False)

    def __init__(self, seconds: float, held: bool) -> None:  # noqa: FBT001 — of the lines above
        self.after = timedelta(seconds=seconds)
        self.held = held


class Waiting:
    """Postpones entries. Used by several threads.

    What waits for long is *parked*: moved to a bucket as far ahead as it is late, so that each move
    doubles the time to the next one, and nothing has to be stored about it. `wanted` says whose
    parked entries are to be read before their minute; that is how they continue as soon as they
    can.
    """

    def __init__(
        self, due: DueStore, holding: Holding, parked: Parked, clock: Clock, quotas: TenantQuotas
    ) -> None:
        self._due = due
        self._holding = holding
        self._parked = parked
        self._clock = clock
        self._quotas = quotas
        self._lock = threading.Lock()
        self._near: dict[Slot, str] = {}
        self._waiting: Counter[str] = Counter()  # as of the last poll, and what it lets in
        self._allowed: dict[str, int] = {}
        self._tries = 0
        self._tried: dict[str, int] = {}  # by tenant, the number of its last try
        self._least = _LOOKS
        self._no_quota_until: dict[str, datetime] = {}
        self._spread = Spread()

    def wanted(self, now: datetime) -> Mapping[str, int]:
        """By tenant, how many parked entries may be tried now; once for each poll. The tenants that
        were not tried for the longest time come first.

        As long as all that are tried continue, it is twice as many each time.
        """
        tenants = self._parked.tenants
        with self._lock:
            self._least = max(_LOOKS // max(len(tenants), 1), 1)
            self._waiting = waiting = self._count()
            for tenant in tenants - waiting.keys():
                self._allowed[tenant] = min(2 * self._allowed.get(tenant, self._least), _NEAR)
            for tenant in self._allowed.keys() - tenants:
                del self._allowed[tenant]
            return {
                tenant: left for tenant in tenants if (left := self._left(tenant, waiting, now)) > 0
            }

    def lets_in(self, stored: StoredEntry, now: datetime) -> bool:
        """Whether to hold *stored*, which is not known: one that is parked only if it may be tried
        now.
        """
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
        return self._allowed.get(tenant, self._least) - waiting[tenant]

    def _count(self) -> Counter[str]:
        """By tenant, what is being tried, or was just now and has to wait."""
        self._near = {s: t for s, t in self._near.items() if self._holding.waits(s)}
        return Counter(self._near.values())

    def postpone(self, entries: Sequence[StoredEntry], why: Why) -> None:
        """Look at *entries* again after a while.

        Those of the past come along to the present: otherwise one that cannot be sent would hold
        its cursor back, and every poll would read all buckets since. What is held back for more
        than a minute, what is too much of a tenant to be read again and again, and what waits for
        a later minute's quota, is parked. What is parked already stays where it is.
        """
        if not entries:
            return
        now = self._clock.now()
        near, far = self._part(entries, why, now)
        present = bucket_name(floor_minute(now), 0)
        self._move([s for s in near if s.slot.bucket < present], now, why)
        for minute, parked in far.items():
            self._move(parked, minute, why)
            self._parked.note(minute, {s.entry.job.tenant for s in parked})
        unmarked = [s for s in near if why.held and not s.entry.held and s.slot.bucket >= present]
        if unmarked:
            with suppress(UnavailableError):  # it only tells why they are late
                self._due.mark_held(unmarked)

    def _part(
        self, entries: Sequence[StoredEntry], why: Why, now: datetime
    ) -> tuple[list[StoredEntry], Mapping[datetime, list[StoredEntry]]]:
        """Those that wait where they are, and are ignored for a while; and those to park, by the
        minute of their new bucket.
        """
        next_minute = floor_minute(now) + MINUTE
        near: list[StoredEntry] = []
        far: dict[datetime, list[StoredEntry]] = defaultdict(list)
        with self._lock:
            waiting = self._count()
            for stored in entries:
                tenant = stored.entry.job.tenant
                if why is Why.NO_QUOTA:
                    self._no_quota_until[tenant] = next_minute + _QUOTA_SEEN_AFTER
                elif why.held:
                    self._allowed[tenant] = self._least
                # One in a future bucket is parked already, or was found by the look-ahead.
                if stored.slot.minute < next_minute and (
                    why is Why.NO_QUOTA
                    or (why.held and now - stored.entry.at >= MINUTE)
                    or waiting[tenant] >= _NEAR
                ):
                    far[self._minute_for(stored.entry, why, now)].append(stored)
                    continue
                waiting[tenant] += 1
                near.append(stored)
                self._near[stored.slot] = tenant
            for stored in near:
                wait = max(why.after, _PARKED_AGAIN) if stored.is_parked(now) else why.after
                until = next_minute if why is Why.NO_QUOTA else now + wait
                self._holding.ignore([stored.slot], until)
        return near, far

    def _minute_for(self, entry: DueEntry, why: Why, now: datetime) -> datetime:
        """The minute of the bucket in which to park *entry*."""
        if why is Why.NO_QUOTA and not entry.held:
            rate = self._quotas.of(entry.job.tenant).runs_per_minute or _NEAR
            return self._spread.minute_for(entry.job.tenant, rate, now)
        late = now - entry.at if why.held else MINUTE
        return floor_minute(now + min(max(late, MINUTE), PARKED_AT_MOST))

    def _move(self, entries: list[StoredEntry], at: datetime, why: Why) -> None:
        """Move *entries* to the bucket of what is written at *at*, which is not theirs."""
        if entries:
            moving = dict.fromkeys(_marked(s.entry) if why.held else s.entry for s in entries)
            moved = self._due.put(moving, at)
            left = [stored.slot for stored in entries if stored.entry in moved]
            self._due.delete(left)
            with self._lock:
                for slot in left:
                    self._near.pop(slot, None)  # what it makes wait lies elsewhere


def _marked(entry: DueEntry) -> DueEntry:
    return entry if entry.held else replace(entry, held=True)
