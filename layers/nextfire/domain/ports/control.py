"""Leases and cursors of watchers, and the quotas of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

from nextfire.dataclass import dataclass, field
from nextfire.domain.audit_pass import Audit


@dataclass(frozen=True, slots=True)
class Takeover:
    """A holder did not renew its lease and did not release it, because it died or hung, and another
    watcher took the lease.

    `lost_at`: its last renewal, by its clock. `taken_at`: by the clock of the other watcher.
    """

    lost_at: datetime
    taken_at: datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a watcher group: only its holder may dispatch.

    `epoch` grows with every change of holder. `beat` counts renewals: a standby takes over after it
    has not changed for the lease's duration, so the clocks of holder and standby need not agree.
    `released`: it has no holder. `idle`: its last holder released it because nothing was due soon,
    and no entry was parked; the next holder's first lease keeps it. `groups`: the number of groups
    when it was released as idle; else None. `renewed_at`: the time of the renewal by the holder's
    clock; None if it was not stored. `takeover`: the latest one of the group; None if it is
    unknown. Leases that differ only in the last two are equal.
    """

    holder: str
    epoch: int
    beat: int
    released: bool = False
    idle: bool = False
    groups: int | None = None
    renewed_at: datetime | None = field(default=None, compare=False)
    takeover: Takeover | None = field(default=None, compare=False)


MIN_INSTANT = datetime(1970, 1, 2, tzinfo=UTC)
"""No cursor is earlier."""
CURSOR_AHEAD = timedelta(minutes=15)
"""A cursor that is further after the minute of `seed_cursors`, which is up to 10 minutes before the
clock, is broken: a clock that was set back has moved it, and new entries would never be read.
"""
CURSOR_SET_BACK = timedelta(days=1)
"""How far before the others a broken cursor is set."""
CLOCK_AHEAD = timedelta(minutes=1)
"""How far the clock of a caller that counts runs may be ahead of the others'."""


def cursors_to_set(
    stored: Mapping[int, datetime | None], shards: int, minute: datetime
) -> Mapping[int, datetime]:
    """The cursors that `ControlStore.seed_cursors` sets. *stored*: the existing cursors; None for
    those that do not decode.

    A broken cursor is set to one day before *minute*, or to one day before the earliest of the
    other cursors if that is earlier. The lost value is unknown, and everything after it must be
    read again. Cursors stay within minutes of each other, so the other cursors show a long outage;
    the day covers the loss of all cursors at once. A value that is too early costs reads of empty
    buckets, 60 per poll in addition to the current ones; a value that is too late would lose runs.
    """
    sound = {
        shard: cursor
        for shard, cursor in stored.items()
        if cursor is not None and cursor <= minute + CURSOR_AHEAD
    }
    back = max(min([minute, *sound.values()]) - CURSOR_SET_BACK, MIN_INSTANT)
    return {s: back if s in stored else minute for s in set(range(shards)) - sound.keys()}


class ControlStore(Protocol):
    """Stores the watchers' leases and cursors, the progress of the audit, and the runs dispatched
    per minute for tenants with a quota.
    """

    def lease(self, group: int, *, consistent: bool = False) -> Lease | None:
        """Return the group's lease, possibly slightly stale unless *consistent*; None if there
        never was one. A lease that does not decode is returned as one without holder that is never
        renewed.
        """

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        """Replace the group's lease *was* with *to*. Of concurrent callers with the same *was*,
        exactly one succeeds.
        """

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        """Create missing cursors of the shards below *shards*, at *minute*. A cursor that does not
        decode, or is `CURSOR_AHEAD` of *minute*, is reset to `CURSOR_SET_BACK` before the earliest
        of *minute* and the other cursors.
        """

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        """Return the cursors of *shards* that have one, by consistent reads."""

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        """Set a cursor, unless the holder of a later epoch has already set it."""

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        """Take up to *wanted* (≥ 1) of the *most* runs that *tenant* may have in *minute*.

        Concurrent callers never take more than *most* together. If a response is lost, the runs it
        took stay unused. If a caller's clock is up to `CLOCK_AHEAD` ahead, other callers count in
        its minute. A stored count that does not decode counts as 0.

        Returns:
            The number of runs taken; 0 if none are left.
        """

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        """Return the number of runs that *tenant* has taken in *minute*, by a consistent read. A
        stored count that does not decode counts as 0.
        """

    def audit(self, part: int | None = None) -> Audit | None:
        """Return the latest audit, or its *part* (≥ 0) in progress, by a consistent read; None if
        there never was one.
        """

    def replace_audit(self, was: Audit | None, to: Audit, part: int | None = None) -> bool:
        """Replace the latest audit, or *part*, *was* with *to*. Of concurrent callers with the same
        *was*, exactly one succeeds.
        """
