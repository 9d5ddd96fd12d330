"""The loop of a watcher's invocation: step until its time is over, then release the lease."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.worker import Notices
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.due_soon import DueSoon
from nextfire.usecases.watch import Watch

AFTER_TROUBLE = timedelta(milliseconds=250)
"""Time until the next step after a store did not answer."""
AWAKE_AT_LEAST = timedelta(seconds=1)
"""Shortest life of a watcher that a tick started."""
WOKEN_AT_LEAST = timedelta(seconds=1.5)
"""Shortest life of a watcher that a writer woke. Writers rely on it; see `AGAIN_AFTER`."""
LOOK_EVERY = timedelta(seconds=30)
"""How often a watcher that is awake looks whether something is still due soon."""
_PUBLISH_EVERY = timedelta(seconds=5)


class WatcherNotices(Notices, Protocol):
    """Reports the steps of a watcher."""

    def took_lease(self, group: int, lease: Lease) -> None:
        """Log that this watcher now holds *lease*, of *group*, and the latest takeover."""

    def tick(self, report: TickReport) -> None:
        """Count what a step did."""

    def flush(self) -> None:
        """Publish the counts since the last call."""


class WatcherLife:
    """Steps *watch* by *clock*. A process keeps it from one invocation to the next."""

    def __init__(
        self, watch: Watch, clock: Clock, notices: WatcherNotices, due_soon: DueSoon
    ) -> None:
        self._watch = watch
        self._due_soon = due_soon
        self._look_at: datetime | None = None
        self._woken = False
        self._clock = clock
        self._notices = notices
        self._publish_at: datetime | None = None
        self.dispatched = 0
        """Number of runs dispatched so far, in all lives."""

    @property
    def holds(self) -> bool:
        """Whether the last turn held the lease."""
        return self._watch.holds

    def live(self, life: timedelta, *, sleeps: bool = False, woken: bool = False) -> int:
        """Watch for *life*. Returns the number of runs dispatched in that time.

        With *sleeps*, the life ends early when nothing is due within *life*. The caller starts a
        watcher at least twice in that time, so that two watchers find what is due later. *woken*: a
        writer started this watcher, in addition to those.
        """
        end_at, before = self.begin(woken=woken) + life, self.dispatched
        while (now := self._clock.now()) < end_at:
            again_at = self.turn(now)
            if sleeps and self.falls_asleep(life):
                break
            self._clock.sleep(max(min(again_at, end_at) - self._clock.now(), timedelta()))
        self.end()
        return self.dispatched - before

    def begin(self, *, woken: bool = False) -> datetime:
        """Begin a life. Returns the time."""
        now = self._clock.now()
        self._woken = woken
        self._watch.begin(woken=woken)
        self._look_at = now + (WOKEN_AT_LEAST if woken else AWAKE_AT_LEAST)
        return now

    def falls_asleep(self, ahead: timedelta) -> bool:
        """Whether this watcher is not needed now. A holder has then released its lease.

        A holder is not needed if nothing is due within *ahead*. It looks twice, the second time
        consistently and after the release. A writer stores its entry first and then reads the
        lease. So either the holder finds the entry, or the writer finds the lease released and
        wakes a watcher.

        A standby stays until it is the holder: the holder may end by its age or die, and no writer
        wakes a watcher while the lease is held. Only one that was woken ends if another watcher
        renews the lease, because it is in addition to those that ticks start.
        """
        now = self._clock.now()
        if self._look_at is None or now < self._look_at or self._watch.waits:
            return False
        if not self._watch.holds:
            return self._woken and self._watch.renewed_by_another
        self._look_at = now + LOOK_EVERY
        try:
            if self._due_soon.any(now, ahead):
                return False
            self._record(self._watch.finish())
            if not self._watch.end(idle=True):
                return False
            if not self._due_soon.any(self._clock.now(), ahead, consistent=True):
                return True
        except UnavailableError as error:
            self._notices.warn("the watcher stays awake", error)
        return False

    def turn(self, now: datetime) -> datetime:
        """Do one step at *now*. Returns when to do the next."""
        report = None
        try:
            report, again_at = self._watch.step(now)
        except UnavailableError as error:
            self._notices.warn("the watcher retries a step", error)
            # No run may be sent, so that none is late; and polls may succeed meanwhile.
            report, again_at = TickReport(undelivered=1), now + AFTER_TROUBLE
        if report is not None:
            self._record(report)
        if self._publish_at is None:
            self._publish_at = now + _PUBLISH_EVERY
        elif now >= self._publish_at:
            self._publish(now)
        return again_at

    def end(self) -> None:
        """Release the lease, so that the standby takes over immediately, and publish the counts."""
        self._record(self._watch.finish())
        try:
            self._watch.end()
        except UnavailableError as error:
            self._notices.warn("the lease was not released", error)
        self._publish(None)

    def _record(self, report: TickReport) -> None:
        self.dispatched += len(report.dispatched)
        self._notices.tick(report)

    def _publish(self, now: datetime | None) -> None:
        self._notices.flush()
        self._publish_at = None if now is None else now + _PUBLISH_EVERY
