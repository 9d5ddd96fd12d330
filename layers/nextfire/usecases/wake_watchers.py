"""Wake the watchers of a group when an entry is stored that is due soon and they sleep.

The stores here pass everything on to another store, and wake watchers after a due entry was stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol

from nextfire.domain.due import DueEntry
from nextfire.domain.job import Job
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore, Lease
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.ports.waker import Waker
from nextfire.domain.run import Run
from nextfire.usecases.hold_lease import PRESUMED_DEAD_AFTER

BEFORE_SECOND_TICK = timedelta(seconds=125)
"""A tick finds an entry that is due later, even if the next tick is lost. Ticks are a minute apart,
and several seconds late at times.
"""
AGAIN_AFTER = timedelta(seconds=1)
"""A process wakes a group at most that often. Less than `WOKEN_AT_LEAST`, so that the watcher that
was woken before finds what was stored meanwhile.
"""


class WakeNotices(Protocol):
    """Reports wake-ups that were lost."""

    def wake_up_lost(self, why: Exception) -> None:
        """Count a watcher that could not be woken: entries may wait for the next tick."""


class WakeWatchers:
    """Wakes the watchers of a group if all of them sleep. Thread-safe.

    Call it after the entries were stored: a watcher releases its lease before it looks for entries
    a last time. So either it finds the entry, or this finds the lease released.

    Args:
        control: The leases.
        waker: Starts watchers.
        clock: The time of this process.
        notices: Receives wake-ups that were lost.
        shards: Number of write shards.
        groups: Number of watcher groups.
    """

    def __init__(
        self,
        control: ControlStore,
        waker: Waker,
        clock: Clock,
        notices: WakeNotices,
        *,
        shards: int,
        groups: int,
    ) -> None:
        self._control = control
        self._waker = waker
        self._clock = clock
        self._notices = notices
        self._shards = shards
        self._groups = groups
        self._woken_at: dict[int, datetime] = {}

    def stored(self, entries: Iterable[DueEntry | None]) -> None:
        """Wake the watchers of *entries* that are due soon. Raises nothing: the entries are stored,
        and the next tick finds them.
        """
        now = self._clock.now()  # the write may have taken seconds
        soon = {
            entry.job.shard(self._shards) % self._groups
            for entry in entries
            if entry is not None and entry.at < now + BEFORE_SECOND_TICK
        }
        for group in sorted(soon):
            try:
                self._wake(group, now)
            except Exception as error:  # noqa: BLE001 - the entries are stored: no reason to fail
                self._notices.wake_up_lost(error)

    def _wake(self, group: int, now: datetime) -> None:
        woken_at = self._woken_at.get(group)
        if woken_at is not None and timedelta() <= now - woken_at < AGAIN_AFTER:
            return
        if not _may_be_asleep(self._control.lease(group, consistent=True), now):
            return
        # Before the call, so that other threads do not call at the same time. Not before the read:
        # what they store after a read that found a holder may need a watcher.
        self._woken_at[group] = self._clock.now()
        try:
            self._waker.wake(group)
        except Exception:
            self._woken_at.pop(group, None)
            raise


def _may_be_asleep(lease: Lease | None, now: datetime) -> bool:
    """Whether *lease* is not held, or its holder has not renewed it for so long that it is dead.

    A watcher that died while nothing was due leaves such a lease.
    """
    if lease is None or lease.released:
        return True
    return lease.renewed_at is not None and now - lease.renewed_at > PRESUMED_DEAD_AFTER


class _Waking:
    """Passes everything on to a store, except for the methods that a subclass defines."""

    def __init__(self, store: Any, wake: WakeWatchers) -> None:  # noqa: ANN401 — the subclass's port
        self._store = store
        self._wake = wake

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — as the store has it
        return getattr(self._store, name)


class WakingJobs(_Waking):
    """A `JobStore`."""

    _store: JobStore

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        **named: Any,  # noqa: ANN401 — as given
    ) -> Job | None:
        existing = self._store.create(job, first, now, **named)
        self._wake.stored([first])
        return existing

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        **named: Any,  # noqa: ANN401 — as given
    ) -> bool:
        stored = self._store.update(job, entry, now, **named)
        self._wake.stored([entry])
        return stored


class WakingRuns(_Waking):
    """A `RunStore`."""

    _store: RunStore

    def redrive(
        self,
        run: Run,
        entry: DueEntry,
        now: datetime,
        **named: Any,  # noqa: ANN401 — as given
    ) -> Claim:
        claim = self._store.redrive(run, entry, now, **named)
        self._wake.stored([entry])
        return claim

    def bring_forward(self, was: Run, to: Run, entry: DueEntry, now: datetime) -> Claim:
        claim = self._store.bring_forward(was, to, entry, now)
        self._wake.stored([entry])
        return claim

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        claim = self._store.request(run, entry, now)
        self._wake.stored([entry])
        return claim


class WakingDue(_Waking):
    """A `DueStore`."""

    _store: DueStore

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        stored = self._store.put(entries, now)
        self._wake.stored(stored)
        return stored
