"""Watchers that may sleep, and a waker that lists the groups that it woke."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from nextfire.domain.due import DispatchEntry, DueEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import run_id
from nextfire.domain.ports.control import ControlStore, Lease
from nextfire.domain.ports.due import DueStore
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.wake_watchers import WakeWatchers
from nextfire.usecases.watcher_life import WatcherLife
from nextfire.wiring.watcher import WatcherConfig, build_watcher
from tests.builders import NOON, job_key
from tests.fakes import InlineExecutor, MemoryNotices
from tests.world import World

LIFE = timedelta(seconds=125)
SECOND = timedelta(seconds=1)
SHARDS = 2
UID = "uid00001"
RUN = run_id(UID, NOON)


class Notices(MemoryNotices):
    def __init__(self) -> None:
        super().__init__()
        self.lost: list[str] = []

    def took_lease(self, group: int, lease: Lease) -> None: ...

    def tick(self, report: object) -> None: ...

    def flush(self) -> None: ...

    def wake_up_lost(self, why: Exception) -> None:
        self.lost.append(str(why))


class Woken(list[int]):
    """A `Waker` that lists the groups that it woke."""

    fails = False

    def wake(self, group: int) -> None:
        if self.fails:
            raise UnavailableError("Lambda is throttled")
        self.append(group)


@pytest.fixture
def world() -> World:
    return World(shards=SHARDS)


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def notices() -> Notices:
    return Notices()


@pytest.fixture
def wake(world: World, woken: Woken, notices: Notices) -> WakeWatchers:
    control = world.faults.through(world.control, "control")
    return WakeWatchers(control, woken, world.clock, notices, shards=SHARDS, groups=1)


def a_watcher(
    world: World,
    name: str = "a",
    between: Callable[[], object] = int,
    *,
    shards: int = SHARDS,
    groups: int = 1,
    notices: Notices | None = None,
) -> WatcherLife:
    """A watcher of the first of *groups*, by default of all shards. *between* is called before each
    of its calls to a store.
    """

    def port(store: Any, of: str) -> Any:
        return _Between(world.faults.through(store, of), between)

    ports = WatcherPorts(
        jobs=port(world.jobs, "jobs"),
        due=cast("DueStore", port(world.due, "due")),
        runs=port(world.runs, "runs"),
        queue=port(world.queue, "queue"),
        control=cast("ControlStore", port(world.control, "control")),
        clock=world.clock,
        executor=InlineExecutor(),
        lanes=InlineExecutor(),
    )
    config = WatcherConfig(0, name, range(0, shards, groups), world.shares, groups=groups)
    return build_watcher(ports, config, cast("Any", notices or Notices()))


class _Between:
    def __init__(self, store: Any, between: Callable[[], object]) -> None:
        self._store, self._between = store, between

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self._between()
            return getattr(self._store, name)(*args, **named)

        return call


def lives(world: World, watcher: WatcherLife) -> timedelta:
    """How long an invocation of *watcher* takes."""
    began = world.now
    watcher.live(LIFE, sleeps=True)
    return world.now - began


def an_entry(world: World, after: timedelta) -> DueEntry:
    return DispatchEntry(
        job_key("report"), UID, world.now + after, run_id=RUN, dispatch=2, pool="default"
    )


def asleep(world: World) -> bool:
    lease = world.control.lease(0)
    return lease is None or lease.released
