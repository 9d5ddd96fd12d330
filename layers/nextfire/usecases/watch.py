"""The steps of a watcher: hold the lease or stand by; as the holder, poll and release."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from nextfire.domain.ports.control import Lease
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.dispatch.tick import POLL_EVERY, Dispatch
from nextfire.usecases.hold_lease import HoldLease

ENOUGH = 1_000
"""With this many entries held, most due entries are known and polls are less frequent."""
BUSY_POLL_EVERY = timedelta(seconds=2)
"""Poll interval with `ENOUGH` entries held. Polls never stop, so that other tenants get turns."""


class Watch:
    """One watcher of a group. The caller has the clock and calls `step`."""

    def __init__(self, lease: HoldLease, dispatcher: Callable[[Lease], Dispatch]) -> None:
        self._lease = lease
        self._new_dispatcher = dispatcher
        self._dispatcher: Dispatch | None = None
        self._epoch = 0
        self._polled_at: datetime | None = None
        self._polled = False

    def begin(self, *, woken: bool) -> None:
        """Begin a life of the watcher. *woken*: it reads the lease consistently."""
        self._lease.begin(consistent=woken)

    @property
    def renewed_by_another(self) -> bool:
        """Whether another watcher was seen to take or renew the lease since `begin`."""
        return self._lease.renewed_by_another

    @property
    def holds(self) -> bool:
        """Whether the last step held the lease."""
        return self._dispatcher is not None

    def step(self, now: datetime) -> tuple[TickReport | None, datetime]:
        """Do the work that is due at *now*.

        Returns:
            What was done (None without the lease), and when to call again.

        Raises:
            UnavailableError: A store did not answer. Call again soon; nothing is lost.
        """
        lease = self._lease.step(now)
        again_at = self._lease.next_at or now
        if lease is None:
            self._dispatcher = None
            if self._lease.trouble is not None:
                raise self._lease.trouble  # no run may be sent: the operator has to know
            return None, again_at
        if self._dispatcher is None or lease.epoch != self._epoch:
            self._dispatcher, self._epoch = self._new_dispatcher(lease), lease.epoch
            self._polled_at = None
        every = POLL_EVERY if self._dispatcher.backlog < ENOUGH else BUSY_POLL_EVERY
        poll_at = now if self._polled_at is None else self._polled_at + every
        if now >= poll_at and not self._polled:
            # Set first: a failed poll is retried at the next interval, and releases continue
            # meanwhile. A poll may take long, so the lease is checked again before a release; and
            # there is always a release before the next poll, however long the last one took.
            self._polled_at, self._polled = now, True
            return self._dispatcher.poll(now), now
        self._polled = False
        report = self._dispatcher.release(now)
        return report, min(again_at, poll_at, self._dispatcher.next_at or again_at)

    def finish(self) -> TickReport:
        """Wait for the batches in flight. Returns their results."""
        return TickReport() if self._dispatcher is None else self._dispatcher.finish()

    @property
    def waits(self) -> bool:
        """Whether this watcher holds entries, or has to look for parked ones."""
        return self._dispatcher is not None and not self._dispatcher.is_idle

    def end(self, *, idle: bool = False) -> bool:
        """Release the lease, so that the standby takes over immediately. *idle*: see `Lease`.
        Returns whether it was held and is released.
        """
        self._dispatcher = None
        return self._lease.release(idle=idle)
