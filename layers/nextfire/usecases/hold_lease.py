"""Hold the lease of a watcher group, or stand by to take it over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import to_ms
from nextfire.domain.ports.control import ControlStore, Lease, Takeover

LIFE = timedelta(seconds=3)
PRESUMED_DEAD_AFTER = LIFE + timedelta(seconds=5)
"""Age of a renewal by which others can tell that the holder is dead, although clocks differ."""
RENEW_EVERY = timedelta(seconds=1)
WATCH_EVERY = timedelta(milliseconds=500)
IDLE_FOR = timedelta(minutes=10)
"""Age of an idle lease after which entries may be parked: while the number of groups was lower,
another group had its shards.
"""


class HoldLease:
    """One watcher's part in the lease of its group.

    A standby takes over when the lease has not changed for `LIFE` by its own clock, or immediately
    when the lease was released. Clocks are never compared, so they need not agree. An undecodable
    item is treated as an unchanged lease: its holder cannot renew it and gives up, and after `LIFE`
    the first standby that notices takes over.
    """

    def __init__(self, control: ControlStore, *, group: int, holder: str, groups: int = 1) -> None:
        self._control = control
        self._group = group
        self._groups = groups
        self._holder = holder
        self._mine: Lease | None = None
        self._renewed_at: datetime | None = None
        self._pending: tuple[Lease, datetime] | None = None
        self._seen: Lease | None = None
        self._seen_at: datetime | None = None
        self._stepped_at: datetime | None = None
        self._consistent = False
        self.renewed_by_another = False
        """Whether the lease was seen to change hands or to be renewed since `begin`."""
        self.next_at: datetime | None = None
        """When `step` has work again; None: now."""
        self.trouble: UnavailableError | None = None
        """Why the last `step` could neither read nor write the lease, if it tried and failed."""

    def begin(self, *, consistent: bool = False) -> None:
        """Forget what was seen of other holders. *consistent*: how a standby reads from now on."""
        self._consistent = consistent
        self._seen_at = None
        self.renewed_by_another = False

    def step(self, now: datetime) -> Lease | None:
        """Renew or try to take over, if it is time. Returns the lease if it is held at *now*."""
        if self._stepped_at is not None and now < self._stepped_at:
            # The clock was set back, so the ages below are unknown: start again as a standby.
            self._mine = self._renewed_at = self._pending = self._seen_at = self.next_at = None
        self._stepped_at, self.trouble = now, None
        if self.next_at is None or now >= self.next_at:
            try:
                self._renew(now) if self._mine else self._watch(now)
            except UnavailableError as error:
                self.trouble = error
                # It is unknown whether the write succeeded. The lease ends after `LIFE`, see below.
                self.next_at = now + WATCH_EVERY
                self.renewed_by_another = False
            else:
                self.next_at = now + (RENEW_EVERY if self._mine else WATCH_EVERY)
        if self._renewed_at is not None and now - self._renewed_at >= LIFE:
            self._mine = self._renewed_at = None
        return self._mine

    def release(self, *, idle: bool = False) -> bool:
        """Release the lease, so that a standby takes over immediately. *idle*: see `Lease`.

        Returns False if it was not released: another watcher has it, or a renewal was stored
        without an answer.

        Raises:
            UnavailableError: The store did not answer. It may be released.
        """
        released = False
        if self._mine is not None:
            groups = self._groups if idle else None
            to = replace(self._next(self._mine), released=True, idle=idle, groups=groups)
            released = self._control.replace_lease(self._group, self._mine, to)
        self._mine = self._renewed_at = self._seen_at = None
        return released

    def _renew(self, now: datetime) -> None:
        assert self._mine is not None  # noqa: S101 — for the type checker
        self._replace(self._mine, self._next(self._mine), now)

    def _next(self, mine: Lease) -> Lease:
        return Lease(self._holder, mine.epoch, mine.beat + 1, takeover=mine.takeover)

    def _watch(self, now: datetime) -> None:
        lease = self._control.lease(self._group, consistent=self._consistent)
        if lease != self._seen or self._seen_at is None:
            is_held = lease is not None and not lease.released
            self.renewed_by_another = is_held and self._seen_at is not None
            self._seen, self._seen_at = lease, now
        is_unchanged = now - self._seen_at >= LIFE
        if lease is None or lease.released or is_unchanged:
            # Time-based, so that a later holder of a cursor has a later epoch in any group.
            epoch = max(lease.epoch + 1 if lease else 1, to_ms(now))
            idle = lease is not None and self._is_idle(lease, now)
            takeover = self._takeover(lease, now) if lease else None
            self._replace(lease, Lease(self._holder, epoch, 0, idle=idle, takeover=takeover), now)

    def _is_idle(self, lease: Lease, now: datetime) -> bool:
        """Whether no entry is parked in the shards of this watcher, according to *lease*."""
        is_recent = to_ms(now - IDLE_FOR) < lease.epoch  # the time at which it was taken
        return lease.released and lease.idle and lease.groups == self._groups and is_recent

    def _takeover(self, was: Lease, now: datetime) -> Takeover | None:
        """The latest takeover of the group, if this watcher takes *was* at *now*. To take its own
        lease again, which it could not renew for a while, is not one. The last renewal of a lease
        that was released is unknown.
        """
        if was.holder == self._holder or was.renewed_at is None:
            return was.takeover
        return Takeover(was.renewed_at, now)

    def _replace(self, was: Lease | None, to: Lease, now: datetime) -> None:
        # A first try may have written the lease unnoticed: it counts from that try.
        since = self._pending[1] if self._pending is not None and self._pending[0] == to else now
        self._pending = to, since
        if self._control.replace_lease(self._group, was, replace(to, renewed_at=now)):
            self._mine, self._renewed_at = to, since
        else:
            self._mine = self._renewed_at = None
        self._pending = None
