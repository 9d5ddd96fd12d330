"""Builds the watcher's process from its ports."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor

from nextfire.dataclass import dataclass
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore, Lease
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.removed_pools import Pools
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.tick import ALL_POOLS, BUDGET, Dispatch
from nextfire.usecases.due_soon import DueSoon
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from nextfire.usecases.watcher_life import WatcherLife, WatcherNotices


@dataclass(frozen=True, slots=True)
class WatcherPorts:
    """The ports of a watcher. `executor` makes single calls concurrently; `lanes` runs up to
    `at_once` batches concurrently; `readers`: see `Dispatch`.
    """

    jobs: JobStore
    due: DueStore
    runs: RunStore
    queue: RunQueue
    control: ControlStore
    clock: Clock
    executor: Executor
    lanes: Executor
    at_once: int = 1
    readers: Executor | None = None


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


def build_dispatcher(
    ports: WatcherPorts,
    shards: Collection[int],
    shares: Shares,
    epoch: int,
    budget: int = BUDGET,
    *,
    pools: Pools = ALL_POOLS,
    nothing_parked: bool = False,
) -> Dispatch:
    """The use case that dispatches for the lease holder with this *epoch*. *pools*,
    *nothing_parked*: see `Dispatch`.
    """
    return Dispatch(
        jobs=ports.jobs,
        due=ports.due,
        runs=ports.runs,
        queue=ports.queue,
        control=ports.control,
        clock=ports.clock,
        executor=ports.executor,
        readers=ports.readers,
        lanes=ports.lanes,
        at_once=ports.at_once,
        budget=budget,
        shards=shards,
        epoch=epoch,
        shares=shares,
        pools=pools,
        nothing_parked=nothing_parked,
    )


def build_watch(ports: WatcherPorts, config: WatcherConfig, notices: WatcherNotices) -> Watch:
    """The steps of a watcher, without the loop around them."""

    def dispatcher(lease: Lease) -> Dispatch:
        notices.took_lease(config.group, lease)
        return build_dispatcher(
            ports,
            config.shards,
            config.shares,
            lease.epoch,
            config.budget,
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
