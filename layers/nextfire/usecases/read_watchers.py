"""Whether watchers hold the leases of their groups, and which of them were lost recently."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from nextfire.domain.activity import RECENT
from nextfire.domain.instants import from_ms
from nextfire.domain.ports.control import ControlStore, Lease
from nextfire.domain.watchers import WatcherGroup, WatcherState
from nextfire.usecases.hold_lease import LIFE

LOST_AFTER = LIFE + timedelta(seconds=1)
"""Age of the last renewal from which a holder is reported as lost. It only informs: nothing is
decided by it, because clocks may differ by more.
"""
_STARTED_WITHIN = timedelta(minutes=3)
"""A watcher is started each minute, and takes the lease at the latest when the former one ends."""


def read_watchers(
    control: ControlStore, groups: int, now: datetime, *, life: timedelta
) -> Iterator[WatcherGroup]:
    """Each of the *groups* at *now*, by one consistent read each. *life*: the longest of a watcher.

    Raises:
        UnavailableError: The store did not answer.
    """
    for group in range(groups):
        yield _group(group, control.lease(group, consistent=True), now, life)


def _group(group: int, lease: Lease | None, now: datetime, life: timedelta) -> WatcherGroup:
    if lease is None:
        return WatcherGroup(group, WatcherState.NEW, None, None)
    takeover = lease.takeover
    if takeover is not None and now - takeover.taken_at > RECENT:
        takeover = None
    state = WatcherState.ASLEEP if lease.released else WatcherState.WATCHING
    if lease.renewed_at is not None and now - lease.renewed_at > LOST_AFTER:
        state = WatcherState.LOST
    if state is not WatcherState.WATCHING and _last_seen(lease) < now - life - _STARTED_WITHIN:
        state = WatcherState.STOPPED
    return WatcherGroup(group, state, lease.renewed_at, takeover)


def _last_seen(lease: Lease) -> datetime:
    """The last renewal, or when the last holder took the lease that it has released since."""
    return lease.renewed_at or from_ms(lease.epoch)
