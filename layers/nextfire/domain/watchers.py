"""What is known about a group of watchers at one moment."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from nextfire.dataclass import dataclass
from nextfire.domain.ports.control import Takeover


class WatcherState(StrEnum):
    """NEW: the group never had a watcher, and gets one within a minute. WATCHING: a watcher renews
    the lease of the group. ASLEEP: the lease is released, because nothing is due soon. LOST: the
    holder died or hangs, and no watcher has taken the lease. STOPPED: no watcher has renewed
    or taken the lease for minutes: none is started, or each ends at once.
    """

    NEW = "NEW"
    WATCHING = "WATCHING"
    ASLEEP = "ASLEEP"
    LOST = "LOST"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class WatcherGroup:
    """`renewed_at`: the holder's last renewal of the lease; None if it was released, or unknown.
    `takeover`: the latest one, if it is recent.
    """

    group: int
    state: WatcherState
    renewed_at: datetime | None
    takeover: Takeover | None
