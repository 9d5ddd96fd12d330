"""Responses about the watchers of the stack."""

from __future__ import annotations

from datetime import datetime

from nextfire.domain.watchers import WatcherState
from nextfire.responses.base import ApiResponse, field


class TakeoverResponse(ApiResponse):
    """A watcher died or hung while it held the lease, and another one took the lease."""

    # of(takeover)
    lost_at: datetime = field(description="When the lost watcher last renewed the lease.")
    taken_at: datetime = field(description="When the other watcher took it.")


class WatcherResponse(ApiResponse):
    """A group of watchers. One of them holds the lease of the group while something is due soon."""

    # of(group)
    group: int
    state: WatcherState = field(
        description="NEW: the group never had a watcher, and gets one within a minute. WATCHING: a"
        " watcher renews the lease. ASLEEP: nothing is due soon. LOST: the holder died or hangs,"
        " and no watcher has taken the lease yet. STOPPED: no watcher has run for"
        " minutes, so due runs wait."
    )
    renewed_at: datetime | None = field(
        description="Last renewal of the lease. Absent if the last watcher has released it."
    )
    takeover: TakeoverResponse | None = field(
        lambda group: group.takeover and TakeoverResponse.of(group.takeover),
        description="The latest takeover. Present for 15 minutes.",
    )
