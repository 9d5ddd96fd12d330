"""What is due and has to wait stays in the table: when it is looked at again, and where."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum

from nextfire.domain.due import DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports import Clock, DueStore
from nextfire.usecases.dispatch.holding import Holding

_NEAR = 1_000
"""Entries of a tenant that wait in their buckets; more are put off."""


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
    """Postpones entries. Used by several threads."""

    def __init__(self, due: DueStore, holding: Holding, clock: Clock) -> None:
        self._due = due
        self._holding = holding
        self._clock = clock
        self._lock = threading.Lock()
        self._near: dict[Slot, str] = {}

    def postpone(self, entries: Sequence[StoredEntry], why: Why) -> None:
        """Look at *entries* again after a while.

        Those of the past come along to the present: otherwise one that cannot be sent would hold
        its cursor back, and every poll would read all buckets since. What is too much of a tenant
        to be read again and again, and what waits for the next minute's quota, is put off.
        """
        if not entries:
            return
        now = self._clock.now()
        next_minute = floor_minute(now) + MINUTE
        until = next_minute if why is Why.NO_QUOTA else now + why.after
        near, far = self._part(entries, why, next_minute, until)
        present = bucket_name(floor_minute(now), 0)
        self._move([s for s in near if s.slot.bucket < present], now, why)
        self._move(far, next_minute, why)
        unmarked = [s for s in near if why.held and not s.entry.held and s.slot.bucket >= present]
        if unmarked:
            with suppress(UnavailableError):  # it only tells why they are late
                self._due.mark_held(unmarked)

    def _part(
        self, entries: Sequence[StoredEntry], why: Why, next_minute: datetime, until: datetime
    ) -> tuple[list[StoredEntry], list[StoredEntry]]:
        """Those that wait where they are, from now on ignored *until* then; and those to move."""
        near: list[StoredEntry] = []
        far: list[StoredEntry] = []
        with self._lock:
            self._near = {s: t for s, t in self._near.items() if self._holding.ignores(s)}
            waiting = Counter(self._near.values())
            for stored in entries:
                tenant = stored.entry.job.tenant
                # One that the look-ahead found in the next minute's bucket is there already.
                too_many = why is Why.NO_QUOTA or waiting[tenant] >= _NEAR
                if too_many and stored.slot.minute < next_minute:
                    far.append(stored)
                    continue
                waiting[tenant] += 1
                near.append(stored)
                self._near[stored.slot] = tenant
            self._holding.ignore((stored.slot for stored in near), until)
        return near, far

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
