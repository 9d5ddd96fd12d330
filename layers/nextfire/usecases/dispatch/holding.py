"""Due entries held in memory. None of this is written, so a watcher that dies loses nothing."""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice

from nextfire.domain.due import Slot, StoredEntry
from nextfire.domain.fair_queue import FairQueue
from nextfire.domain.ids import JobKey

BATCH = 100
"""Entries that are handled together: the maximum number of keys of one BatchGetItem."""
_SPARE_PART = BATCH // 4  # share of an incomplete batch for spare entries
_SPARE_OF_FULL = BATCH // 100  # a record of a skipped occurrence costs almost as much as four runs
_LEFT_FOR = timedelta(minutes=1)
_FRESH = timedelta(seconds=5)
_SEEN_AGAIN = timedelta(seconds=5)  # a deleted entry may still show in eventually consistent reads


class HeldEntries:
    """Holds entries until they are handled. Used by several threads.

    An entry is held until it is due, then it is ready: tenants take turns. The entries of a batch
    are *in flight*; other due entries of their jobs wait until those are done, so a job has entries
    in one batch at most. An entry that can wait is *spare*: it is taken when nothing else is ready,
    and one or a few with each other batch. Spare entries use half of the memory at most; more of
    them are left in the table. An ignored slot is not held again until its time. The slots of
    handled entries that could not be deleted count as entries.

    Args:
        weights: Weights of the tenants' turns.
        budget: Maximum number of entries in memory. Those that just became due have a quarter more;
            three eighths if their tenant has fewer than `BATCH` entries, which a backlog of others
            must not delay.
    """

    def __init__(self, weights: Mapping[str, int], budget: int) -> None:
        self._budget = budget
        self._lock = threading.RLock()
        self._held: dict[Slot, StoredEntry] = {}
        self._tenants: Counter[str] = Counter()
        self._heap: list[tuple[datetime, Slot]] = []
        self._ready = FairQueue(weights)
        self._spare: dict[Slot, StoredEntry] = {}
        self._ignored: dict[Slot, datetime] = {}
        self._deleted: dict[Slot, datetime] = {}
        self._undeleted: dict[Slot, None] = {}
        self._in_flight: set[Slot] = set()
        self._was_spare: set[Slot] = set()
        self._busy_jobs: set[JobKey] = set()
        self._blocked: dict[JobKey, deque[StoredEntry]] = {}

    def __len__(self) -> int:
        return len(self._held) + len(self._spare) + len(self._undeleted)

    @property
    def known(self) -> int:
        """Number of entries held, in flight or ignored for now; an entry that is being left counts
        twice. Called with each release, so the slots are not compared.
        """
        return len(self) + len(self._in_flight) + len(self._ignored)

    @property
    def room(self) -> int:
        """How many more entries to read."""
        return max(self._budget - len(self), 0)

    @property
    def room_for_late(self) -> int:
        """How many more entries to read that are late; 0 with as many spare entries as are kept."""
        return 0 if len(self._spare) >= self._budget // 2 else self.room

    @property
    def busy(self) -> bool:
        """Whether entries are ready and not yet in flight."""
        return bool(self._ready)

    @property
    def next_at(self) -> datetime | None:
        """When the next entry is ready; in the past if one is ready now. None: nothing is held."""
        with self._lock:
            if self._ready:
                return self._ready.next_at
            if self._spare:
                return next(iter(self._spare.values())).entry.at
            return self._heap[0][0] if self._heap else None

    def knows(self, slot: Slot) -> bool:
        """Whether *slot* is held, in flight, ignored, deleted or to be deleted."""
        return (
            slot in self._held
            or slot in self._in_flight
            or slot in self._deleted
            or slot in self._undeleted
            or slot in self._ignored
            or slot in self._spare
        )

    def hold(self, stored: StoredEntry, now: datetime) -> None:
        """Hold *stored* until it is due. If the memory is used up it is dropped, and read again."""
        with self._lock:
            if self.knows(stored.slot):
                return
            if len(self) >= self._budget + self._extra_room(stored, now):
                return
            self._hold(stored)
            heapq.heappush(self._heap, (stored.entry.at, stored.slot))

    def _hold(self, stored: StoredEntry) -> None:
        self._held[stored.slot] = stored
        self._tenants[stored.entry.job.tenant] += 1

    def _extra_room(self, stored: StoredEntry, now: datetime) -> int:
        """Entries beyond the budget that make room for *stored*."""
        if stored.entry.at < now - _FRESH:
            return 0
        few = self._tenants[stored.entry.job.tenant] < BATCH
        return self._budget * (3 if few else 2) // 8

    def take(self, now: datetime, *, full: bool = False) -> list[StoredEntry]:
        """Take up to `BATCH` entries that are due; they are in flight until `done`. *full*: take a
        full batch or nothing.
        """
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                _, slot = heapq.heappop(self._heap)
                if slot in self._spare:
                    self._hold(self._spare.pop(slot))
                if slot in self._held:
                    self._ready.push(self._held[slot])
            if full and len(self._ready) < BATCH:
                return []
            is_full = len(self._ready) >= BATCH
            spare = self._take_spare(_SPARE_OF_FULL if is_full else _SPARE_PART)
            batch = self._take_ready(BATCH - len(spare))
            if not batch:
                spare += self._take_spare(BATCH - len(spare))
            batch += spare
            self._in_flight.update(stored.slot for stored in batch)
            self._busy_jobs.update(stored.entry.job for stored in batch)
            return batch

    def _take_ready(self, most: int) -> list[StoredEntry]:
        batch: list[StoredEntry] = []
        while self._ready and len(batch) < most:
            stored = self._ready.pop()
            if stored.slot not in self._held:
                # Pushed twice: it was spare until an instant, and was read before that.
                if stored.entry.job not in self._busy_jobs:
                    self._unblock(stored.entry.job)
                continue
            if stored.entry.job in self._busy_jobs:
                self._blocked.setdefault(stored.entry.job, deque()).append(stored)
                continue
            del self._held[stored.slot]
            self._tenants[stored.entry.job.tenant] -= 1
            batch.append(stored)
        return batch

    def _take_spare(self, most: int) -> list[StoredEntry]:
        free = (s for s, each in self._spare.items() if each.entry.job not in self._busy_jobs)
        slots = [*islice(free, most)]
        self._was_spare.update(slots)
        return [self._spare.pop(slot) for slot in slots]

    def done(self, batch: Collection[StoredEntry]) -> None:
        """Mark *batch* as done: its entries are not in flight anymore."""
        with self._lock:
            for stored in batch:
                self._in_flight.discard(stored.slot)
                self._was_spare.discard(stored.slot)
            for job in dict.fromkeys(stored.entry.job for stored in batch):
                self._busy_jobs.discard(job)
                self._unblock(job)

    def _unblock(self, job: JobKey) -> None:
        """Push the next entries of *job*, up to a batch: its others wait until these are done. If
        all of them moved back and forth, a large backlog of one job would use up the CPU.
        """
        behind = self._blocked.pop(job, deque())
        for _ in range(min(BATCH, len(behind))):
            self._ready.push(behind.popleft())
        if behind:
            self._blocked[job] = behind

    def set_aside(self, stored: StoredEntry, until: datetime | None, now: datetime) -> bool:
        """Keep *stored*, an entry of a batch, as spare, until *until* at the latest; or leave it in
        the table for a minute, if there are too many.

        Returns False if it was spare when the batch was taken, so it has waited already.
        """
        slot = stored.slot
        with self._lock:
            if slot in self._was_spare:
                return False
            if len(self._spare) >= self._budget // 2:
                if len(self._ignored) < self._budget:
                    again_at = now + _LEFT_FOR
                    self._ignored[slot] = again_at if until is None else min(until, again_at)
                return True
            self._spare[slot] = stored
            if until is not None:
                heapq.heappush(self._heap, (until, slot))
            return True

    def ignore(self, slots: Iterable[Slot], until: datetime) -> None:
        """Ignore *slots* until *until*."""
        with self._lock:
            self._ignored.update((slot, until) for slot in slots)

    def waits(self, slot: Slot) -> bool:
        """Whether *slot* is held, in flight or ignored, and not deleted."""
        return any(slot in known for known in (self._held, self._in_flight, self._ignored))

    def deleted(self, slots: Collection[Slot], now: datetime) -> None:
        """*slots* are being deleted: reads that began before that, or soon after, may show them."""
        with self._lock:
            self._deleted.update((slot, now + _SEEN_AGAIN) for slot in slots)
            for slot in slots:
                self._undeleted.pop(slot, None)

    def keep_undeleted(self, slots: Iterable[Slot]) -> None:
        """Keep *slots* of entries that were handled, to be deleted later. They go to the end."""
        with self._lock:
            for slot in slots:
                self._undeleted.pop(slot, None)
                self._undeleted[slot] = None

    def undeleted(self, most: int) -> list[Slot]:
        """The first slots to be deleted, at most *most*."""
        with self._lock:
            return [*islice(self._undeleted, most)]

    def forget(self, now: datetime, reads_since: datetime) -> None:
        """Forget ignored slots whose time is over at *now*, and deleted slots that no read that
        began at or after *reads_since* can still show. Call this before each poll.
        """
        with self._lock:
            self._ignored = {slot: until for slot, until in self._ignored.items() if until > now}
            self._deleted = {slot: at for slot, at in self._deleted.items() if at > reads_since}
