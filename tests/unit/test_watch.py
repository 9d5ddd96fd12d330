"""Two watchers of one shard group, stepped like the watcher function steps them."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.control import Lease
from nextfire.usecases.dispatch.tick import Dispatch
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.watch import Watch
from tests.builders import RUN_ALL, at
from tests.world import World


class Watcher:
    """A watcher process that steps when its last step asked for it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.watch = Watch(
            HoldLease(world.faults.through(world.control, "control"), group=0, holder=name),
            self._dispatcher,
        )
        self.again_at = world.now
        self.alive = True

    def _dispatcher(self, lease: Lease) -> Dispatch:
        return self.world.dispatcher(lease.epoch)

    def step(self) -> None:
        if self.alive and self.world.now >= self.again_at:
            try:
                _, self.again_at = self.watch.step(self.world.now)
            except UnavailableError:
                self.again_at = self.world.now + timedelta(milliseconds=250)


def advance_until(world: World, watchers: list[Watcher], until: str) -> None:
    """Advance to *until*; each watcher steps when it is due."""
    end = at(until)
    while world.now < end:
        for watcher in watchers:
            watcher.step()
        assert sum(w.watch.holds for w in watchers if w.alive) <= 1
        waiting: list[datetime] = [w.again_at for w in watchers if w.alive]
        ahead = max(min([*waiting, end]), world.now + timedelta(milliseconds=1))
        world.clock.move_to(ahead)


def lateness(world: World) -> list[timedelta]:
    return [message.dispatched_at - message.key.scheduled_at for message in world.queue.log]


def test_every_occurrence_is_sent_at_its_instant(world: World) -> None:
    world.register(schedule="* * * * *")
    world.register("odd", type="ONCE", schedule="2026-05-24T12:00:17.123Z")

    advance_until(world, [Watcher(world, "a")], "12:03:30")

    assert world.sent == [
        *("report 12:00", "odd 12:00:17", "report 12:01", "report 12:02", "report 12:03"),
    ]
    assert max(lateness(world)) <= timedelta(milliseconds=2)


def test_only_one_of_two_sends(world: World) -> None:
    world.register(schedule="* * * * *")

    advance_until(world, [Watcher(world, "a"), Watcher(world, "b")], "12:05:30")

    assert world.sent == [f"report 12:0{n}" for n in range(6)]


def test_a_killed_holder_delays_a_run_by_four_seconds_at_most(world: World) -> None:
    world.register(schedule="* * * * *")
    first, second = Watcher(world, "a"), Watcher(world, "b")
    advance_until(world, [first, second], "11:59:59.9")
    assert first.watch.holds

    first.alive = False
    advance_until(world, [first, second], "12:00:30")

    assert world.sent == ["report 12:00"]
    assert lateness(world)[0] <= timedelta(seconds=4)


def test_a_holder_that_ends_hands_over_at_once(world: World) -> None:
    world.register(schedule="* * * * *")
    first, second = Watcher(world, "a"), Watcher(world, "b")
    advance_until(world, [first, second], "11:59:59")

    first.watch.end()
    first.alive = False
    assert not first.watch.holds
    advance_until(world, [first, second], "12:00:30")

    assert world.sent == ["report 12:00"]
    assert lateness(world)[0] <= timedelta(milliseconds=2)


def test_a_standby_that_takes_over_reads_all_that_the_holder_left(world: World) -> None:
    world.register(schedule="* * * * *", misfire=RUN_ALL)
    first, second = Watcher(world, "a"), Watcher(world, "b")
    advance_until(world, [first, second], "12:00:30")
    second.alive = first.alive = False
    world.at("12:03:10")

    advance_until(world, [Watcher(world, "c")], "12:03:50")

    assert world.sent == [f"report 12:0{n}" for n in range(4)]


def test_a_poll_that_fails_does_not_stop_what_is_held(world: World) -> None:
    world.register(schedule="* * * * *")
    watcher = Watcher(world, "a")
    advance_until(world, [watcher], "11:59:59.2")
    world.faults.refuse("due.read", times=1000)

    advance_until(world, [watcher], "12:00:01")

    assert world.sent == ["report 12:00"]
    assert lateness(world)[0] <= timedelta(milliseconds=300)


def test_without_the_lease_nothing_is_read(world: World) -> None:
    holder, standby = Watcher(world, "a"), Watcher(world, "b")
    holder.step()
    world.faults.calls.clear()

    standby.step()

    assert world.faults.calls == ["control.lease"]
    report, again_at = standby.watch.step(world.now)
    assert report is None
    assert again_at == world.now + timedelta(milliseconds=500)


def test_more_than_one_batch_is_released_without_waiting(world: World) -> None:
    for n in range(250):
        world.register(f"job{n}")

    advance_until(world, [Watcher(world, "a")], "12:00:00.5")

    assert len(world.sent) == 250


def test_a_large_backlog_is_released_before_more_is_read(world: World) -> None:
    for n in range(1_300):
        world.register(f"job{n}")
    world.register("second", type="ONCE", schedule="2026-05-24T12:00:01Z")

    advance_until(world, [Watcher(world, "a")], "12:00:02")

    assert len(world.sent) == 1_301
    assert world.sent[-1] == "second 12:00:01"


class Leases:
    """Stands in for `HoldLease`: always holds the lease, with another epoch each time."""

    next_at = None

    def __init__(self) -> None:
        self._epochs = count(1)

    def step(self, _: datetime) -> Lease:
        return Lease("a", next(self._epochs), 1)


def test_a_new_epoch_starts_with_a_new_dispatcher(world: World) -> None:
    leases: Any = Leases()
    made: list[int] = []

    def dispatcher(lease: Lease) -> Dispatch:
        made.append(lease.epoch)
        return world.dispatcher(lease.epoch)

    watch = Watch(leases, dispatcher)
    for _ in range(3):
        watch.step(world.now)

    assert made == [1, 2, 3]
