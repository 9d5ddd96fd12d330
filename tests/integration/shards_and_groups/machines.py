"""Machines of one world, each with its own clock and settings, and watchers that run on them."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import Any, cast

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.control import Lease
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.tick import Dispatch
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.watch import Watch
from tests.fakes import Clock, Faults, Killed, MemoryDueStore, MemoryJobStore
from tests.world import BUCKET, POOLS, World

SECOND = timedelta(seconds=1)
NO_TIME = timedelta()


class AheadClock(Clock):
    """The clock of a machine that is *ahead* of *true*; behind if negative."""

    def __init__(self, true: Clock, ahead: timedelta) -> None:
        super().__init__(true.now())
        self._true, self._ahead = true, ahead

    def now(self) -> datetime:
        return self._true.now() + self._ahead

    def move_to(self, at: datetime) -> datetime:
        return self._true.move_to(at - self._ahead) + self._ahead


class WritingTo:
    """A store as seen by a process with *shards* write shards in its settings."""

    def __init__(self, store: object, due: MemoryDueStore, shards: int) -> None:
        self._store, self._due, self._shards = store, due, shards

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._due.shards = self._shards
            return getattr(self._store, method)(*args, **kwargs)

        return call


def machine(world: World, *, writes: int, ahead: timedelta = NO_TIME) -> World:
    """Another machine of the same world, with its own clock, settings and death."""
    other = copy.copy(world)
    other.faults = Faults()
    other.clock = AheadClock(world.clock, ahead)
    other.due = cast("MemoryDueStore", WritingTo(world.due, world.due, writes))
    other.jobs = cast("MemoryJobStore", WritingTo(world.jobs, world.due, writes))
    limits = Limits(POOLS, scripts_bucket=BUCKET)
    unsent = FindUnsent(
        other.faults.through(other.due, "due"),
        other.faults.through(other.control, "control"),
        read_shards=world.shards,
    )
    other.manage = ManageJobs(other.faults.through(other.jobs, "jobs"), limits, unsent)
    return other


class Watcher:
    """One invocation of a group's watcher; steps at the instants that its steps ask for."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        shards: range,
        writes: int,
        group: int = 0,
        ahead: timedelta = NO_TIME,
        ends_at: datetime | None = None,
    ) -> None:
        self.machine = machine(world, writes=writes, ahead=ahead)
        self.faults = self.machine.faults
        self.again_at = world.now
        self.alive = True
        self._world, self._shards, self._ahead, self._ends_at = world, shards, ahead, ends_at
        control = self.faults.through(world.control, "control")
        self.watch = Watch(HoldLease(control, group=group, holder=name), self._dispatcher)

    @property
    def holds(self) -> bool:
        return self.alive and self.watch.holds

    def step(self) -> None:
        """Perform a step; die if `faults` says so."""
        if not self.alive:
            return
        try:
            if self._ends_at is not None and self._world.now >= self._ends_at:
                self.alive = False
                self.watch.end()
                return
            _, again_at = self.watch.step(self.machine.now)
            self.again_at = again_at - self._ahead
        except UnavailableError:
            self.again_at = self._world.now + SECOND / 4
        except Killed:
            self.alive = False

    def _dispatcher(self, lease: Lease) -> Dispatch:
        dispatcher = self.machine.dispatcher(lease.epoch)
        dispatcher._reader._shards = [*self._shards]  # noqa: SLF001 — the world's reader has all shards
        return dispatcher
