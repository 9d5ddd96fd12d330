"""A watcher's life: hold the lease or stand by; holding it, poll and release."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from nextfire.domain.ports import Lease
from nextfire.usecases.dispatch_due import POLL_EVERY, DispatchDue, TickReport
from nextfire.usecases.hold_lease import HoldLease

ENOUGH = 1_000
"""With so many entries held there is less need to poll: most of what is due is known."""
BUSY_POLL_EVERY = timedelta(seconds=2)
"""How often then. Not never: what another tenant has due is to have its turn."""


class Watch:
    """One watcher of a group, stepped by whoever has the clock."""

    def __init__(self, lease: HoldLease, dispatcher: Callable[[Lease], DispatchDue]) -> None:
        self._lease = lease
        self._new_dispatcher = dispatcher
        self._dispatcher: DispatchDue | None = None
        self._epoch = 0
        self._polled_at: datetime | None = None
        self._polled = False

    @property
    def holds(self) -> bool:
        """Whether the last step held the lease."""
        return self._dispatcher is not None

    def step(self, now: datetime) -> tuple[TickReport | None, datetime]:
        """Do what is to be done at *now*.

        Returns:
            What was done, None without the lease; and when to call again.

        Raises:
            UnavailableError: A store did not answer. Call again soon; nothing is lost.
        """
        lease = self._lease.step(now)
        again_at = self._lease.next_at or now
        if lease is None:
            self._dispatcher = None
            return None, again_at
        if self._dispatcher is None or lease.epoch != self._epoch:
            self._dispatcher, self._epoch = self._new_dispatcher(lease), lease.epoch
            self._polled_at = None
        every = POLL_EVERY if self._dispatcher.backlog < ENOUGH else BUSY_POLL_EVERY
        poll_at = now if self._polled_at is None else self._polled_at + every
        if now >= poll_at and not self._polled:
            # Set first: a poll that fails is tried again at its time, releases go on meanwhile. It
            # may take long: the lease is looked at again before anything is released; and
            # something is, before the next poll, however long that one took.
            self._polled_at, self._polled = now, True
            return self._dispatcher.poll(now), now
        self._polled = False
        report = self._dispatcher.release(now)
        return report, min(again_at, poll_at, self._dispatcher.next_at or again_at)

    def end(self) -> None:
        """Let the lease go, so that the standby takes over at once."""
        self._dispatcher = None
        self._lease.release()
