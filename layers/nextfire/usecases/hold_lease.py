"""Hold a watcher group's lease, or stand by to take it over."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import to_ms
from nextfire.domain.ports import ControlStore, Lease

LIFE = timedelta(seconds=3)
RENEW_EVERY = timedelta(seconds=1)
WATCH_EVERY = timedelta(milliseconds=500)


class HoldLease:
    """One watcher's part in its group's lease.

    A standby takes over when it has seen the lease stand still for `LIFE` by its own clock, or at
    once when it was released. No two clocks are compared, so none needs to be right. An item that
    does not decode stands still like any other: its holder cannot renew it and gives up, and after
    a life whoever sees it first takes over.
    """

    def __init__(self, control: ControlStore, *, group: int, holder: str) -> None:
        self._control = control
        self._group = group
        self._holder = holder
        self._mine: Lease | None = None
        self._renewed_at: datetime | None = None
        self._asked: tuple[Lease, datetime] | None = None
        self._seen: Lease | None = None
        self._seen_at: datetime | None = None
        self.next_at: datetime | None = None
        """When `step` has something to do again; None: now."""

    def step(self, now: datetime) -> Lease | None:
        """Renew, or try to take over, if it is time. Returns the lease if it is held at *now*."""
        if self.next_at is None or now >= self.next_at:
            try:
                self._renew(now) if self._mine else self._watch(now)
            except UnavailableError:
                # Unknown whether it was written: not ours once its life has passed, see below.
                self.next_at = now + WATCH_EVERY
            else:
                self.next_at = now + (RENEW_EVERY if self._mine else WATCH_EVERY)
        if self._renewed_at is not None and now - self._renewed_at >= LIFE:
            self._mine = self._renewed_at = None
        return self._mine

    def release(self) -> None:
        """Let a standby have it at once."""
        if self._mine is not None:
            to = Lease(self._holder, self._mine.epoch, self._mine.beat + 1, released=True)
            self._control.replace_lease(self._group, self._mine, to)
        self._mine = self._renewed_at = None

    def _renew(self, now: datetime) -> None:
        assert self._mine is not None  # noqa: S101 — for the type checker
        to = Lease(self._holder, self._mine.epoch, self._mine.beat + 1)
        self._replace(self._mine, to, now)

    def _watch(self, now: datetime) -> None:
        there = self._control.lease(self._group)
        if there != self._seen or self._seen_at is None:
            self._seen, self._seen_at = there, now
        stands_still = now - self._seen_at >= LIFE
        if there is None or there.released or stands_still:
            # Time-based, so that a cursor's later holder has the later epoch, whatever its group.
            epoch = max(there.epoch + 1 if there else 1, to_ms(now))
            self._replace(there, Lease(self._holder, epoch, 0), now)

    def _replace(self, was: Lease | None, to: Lease, now: datetime) -> None:
        # What a first try may have written without our knowing stands still since then.
        since = self._asked[1] if self._asked is not None and self._asked[0] == to else now
        self._asked = to, since
        if self._control.replace_lease(self._group, was, to):
            self._mine, self._renewed_at = to, since
        else:
            self._mine = self._renewed_at = None
        self._asked = None
