"""Builds the watcher's process from its ports."""

from __future__ import annotations

from collections.abc import Collection

from nextfire.dataclass import dataclass
from nextfire.domain.ports.control import Lease
from nextfire.domain.removed_pools import Pools
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.tick import ALL_POOLS, BUDGET, Dispatch
from nextfire.usecases.due_soon import DueSoon
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from nextfire.usecases.watcher_life import WatcherLife, WatcherNotices


@dataclass(frozen=True, slots=True)
class WatcherConfig:
    """The part of the work that this watcher does. `holder` names it in the lease of its *group*,
    one of *groups*. `pools`: those that exist. `budget`: maximum number of due entries in memory.
    """

    group: int
    holder: str
    shards: Collection[int]
    shares: Shares
    budget: int = BUDGET
    pools: Pools = ALL_POOLS
    groups: int = 1


def build_watch(ports: WatcherPorts, config: WatcherConfig, notices: WatcherNotices) -> Watch:
    """The steps of a watcher, without the loop around them."""

    def dispatcher(lease: Lease) -> Dispatch:
        notices.took_lease(config.group, lease)
        return Dispatch(
            ports,
            shards=config.shards,
            epoch=lease.epoch,
            shares=config.shares,
            budget=config.budget,
            pools=config.pools,
            nothing_parked=lease.idle,
        )

    lease = HoldLease(ports.control, group=config.group, holder=config.holder, groups=config.groups)
    return Watch(lease, dispatcher)


def build_watcher(
    ports: WatcherPorts, config: WatcherConfig, notices: WatcherNotices
) -> WatcherLife:
    """A watcher's process. Each invocation runs one `WatcherLife.live`."""
    due_soon = DueSoon(ports.due, ports.control, ports.executor, shards=config.shards)
    return WatcherLife(build_watch(ports, config, notices), ports.clock, notices, due_soon)
