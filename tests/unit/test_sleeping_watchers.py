"""Watchers sleep when nothing is due soon, and are woken by who stores an entry that is."""

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
from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue
from nextfire.usecases.watcher_life import AWAKE_AT_LEAST, LOOK_EVERY, WatcherLife
from nextfire.wiring.watcher import WatcherConfig, WatcherPorts, build_watcher
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

    def took_lease(self, group: int, epoch: int) -> None: ...

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
    return WakeWatchers(control, woken, notices, shards=SHARDS, groups=1)


def a_watcher(
    world: World, name: str = "a", between: Callable[[], object] = int, *, shards: int = SHARDS
) -> WatcherLife:
    """A watcher of all shards. *between* is called before each of its calls to a store."""

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
    config = WatcherConfig(0, name, range(shards), world.shares)
    return build_watcher(ports, config, cast("Any", Notices()))


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


def test_a_watcher_without_work_sleeps_after_the_first_read_of_parked_entries(
    world: World,
) -> None:
    assert lives(world, a_watcher(world)) < 4 * SECOND
    lease = world.control.leases[0]
    assert (lease.holder, lease.released, lease.idle) == ("a", True, True)


def test_a_watcher_after_an_idle_one_sleeps_after_a_second(world: World) -> None:
    lives(world, a_watcher(world, "a"))
    world.faults.calls.clear()
    assert lives(world, a_watcher(world, "b")) == SECOND
    assert asleep(world)
    assert world.faults.calls.count("due.read") < 50  # it does not read the next hour's buckets


@pytest.mark.parametrize("after", [3, 60, 124])
def test_a_watcher_stays_if_something_is_due_in_its_life(world: World, after: int) -> None:
    world.register(type="DELAY", schedule=f"PT{after}S")
    assert lives(world, a_watcher(world)) >= after * SECOND
    assert len(world.sent) == 1


def test_a_watcher_sleeps_if_something_is_due_later(world: World) -> None:
    world.register(type="DELAY", schedule="PT130S")
    assert lives(world, a_watcher(world)) < 4 * SECOND


def test_a_watcher_sleeps_soon_after_the_last_run(world: World) -> None:
    world.register(type="DELAY", schedule="PT20S")
    assert 20 * SECOND < lives(world, a_watcher(world)) < 60 * SECOND


@pytest.mark.parametrize("after", [None, 60])
def test_a_standby_sleeps_if_the_holder_may(world: World, after: int | None) -> None:
    world.control.seed_cursors(SHARDS, NOON)
    world.control.replace_lease(0, None, Lease("other", 1, 0))
    if after:
        world.register(type="DELAY", schedule=f"PT{after}S")
    watcher = a_watcher(world, "standby")
    began = world.now
    end_at, slept = watcher.begin(), False
    while world.now < end_at + 2 * SECOND and not slept:
        world.control.leases[0] = Lease("other", 1, int((world.now - began) / SECOND * 10))
        world.clock.sleep(watcher.turn(world.now) - world.now)
        slept = watcher.falls_asleep(LIFE)
    assert slept is (after is None)
    assert not watcher.holds


def test_a_watcher_with_a_waiting_entry_stays(world: World) -> None:
    job = world.register(type="DELAY", schedule="PT5S", target={"pool": "default", "handler": "x"})
    world.faults.refuse("queue.send", times=1000)
    assert lives(world, a_watcher(world)) == LIFE
    assert job.key.job_id == "report"
    assert not world.sent


def test_a_watcher_stays_awake_if_a_store_does_not_answer(world: World) -> None:
    lives(world, a_watcher(world))
    watcher = a_watcher(world, "b")
    end_at = watcher.begin() + AWAKE_AT_LEAST
    while world.now < end_at:
        world.clock.sleep(watcher.turn(world.now) - world.now)
    world.faults.refuse("control.cursors")

    assert not watcher.falls_asleep(LIFE)
    assert not asleep(world)

    world.advance(seconds=LOOK_EVERY.total_seconds())
    watcher.turn(world.now)
    assert watcher.falls_asleep(LIFE)
    assert asleep(world)


def test_no_entry_falls_between_a_watcher_and_its_writer(woken: Woken) -> None:
    """Whenever a writer comes, it wakes a watcher, or the watcher that is awake finds its entry."""
    calls = 0
    for number in range(1, 500):
        world, count = World(shards=1), 0
        woken.clear()
        lives(world, a_watcher(world, shards=1))
        wake = WakeWatchers(world.control, woken, Notices(), shards=1, groups=1)
        due = WakingDue(world.due, wake)

        def write(world: World = world, due: WakingDue = due, number: int = number) -> None:
            nonlocal count
            count += 1
            if count == number:
                due.put([an_entry(world, 5 * SECOND)], world.now)

        lived = lives(world, a_watcher(world, "b", write, shards=1))
        if count < number:
            break
        calls = number
        assert woken or lived > 5 * SECOND, f"before call {number}"
    assert calls > 10


def test_the_last_look_before_sleep_is_consistent(world: World) -> None:
    looks: list[tuple[bool, bool]] = []
    watcher = a_watcher(world)
    read = world.due.read

    def noted(*args: Any, consistent: bool, **named: Any) -> Any:
        looks.append((asleep(world), consistent))
        return read(*args, consistent=consistent, **named)

    world.due.read = noted  # type: ignore[method-assign]
    lives(world, watcher)
    after_release = [consistent for released, consistent in looks if released]
    assert after_release
    assert all(after_release)


def test_a_due_entry_wakes_sleeping_watchers_once(
    world: World, wake: WakeWatchers, woken: Woken
) -> None:
    lives(world, a_watcher(world))
    due = WakingDue(world.due, wake)

    due.put([an_entry(world, 5 * SECOND), an_entry(world, 6 * SECOND)], world.now)
    due.put([an_entry(world, 5 * SECOND)], world.now)
    assert woken == [0]

    world.advance(seconds=1)
    due.put([an_entry(world, 5 * SECOND)], world.now)
    assert woken == [0, 0]


def test_nobody_is_woken_for_an_entry_that_the_next_tick_finds(
    world: World, wake: WakeWatchers, woken: Woken
) -> None:
    WakingDue(world.due, wake).put([an_entry(world, 76 * SECOND)], world.now)
    assert not woken
    assert "control.lease" not in world.faults.calls


def test_nobody_is_woken_while_a_watcher_holds_the_lease(
    world: World, wake: WakeWatchers, woken: Woken
) -> None:
    world.control.replace_lease(0, None, Lease("other", 1, 0))
    WakingDue(world.due, wake).put([an_entry(world, SECOND)], world.now)
    assert not woken


def test_the_group_of_the_shard_is_woken(world: World, woken: Woken) -> None:
    wake = WakeWatchers(world.control, woken, Notices(), shards=4, groups=3)
    keys = [job_key(f"job-{number}") for number in range(40)]
    for key in keys:
        entry = DispatchEntry(key, UID, world.now, run_id=RUN, dispatch=2, pool="default")
        world.advance(seconds=1)
        wake.stored([entry], world.now)
    assert woken == [key.shard(4) % 3 for key in keys]


def test_a_lease_that_may_not_be_read_is_a_lost_wake_up(
    world: World, wake: WakeWatchers, notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("AccessDenied: the new policy has not arrived")

    monkeypatch.setattr(world.control, "lease", refuse)
    entry = an_entry(world, SECOND)

    assert WakingDue(world.due, wake).put([entry], world.now) == {entry}
    assert notices.lost == ["AccessDenied: the new policy has not arrived"]


@pytest.mark.parametrize("lost", ["the lease is not read", "the waker fails"])
def test_a_lost_wake_up_is_counted_and_hides_nothing(
    world: World, wake: WakeWatchers, woken: Woken, notices: Notices, lost: str
) -> None:
    if lost == "the waker fails":
        woken.fails = True
    else:
        world.faults.refuse("control.lease")
    entry = an_entry(world, SECOND)

    assert WakingDue(world.due, wake).put([entry], world.now) == {entry}
    assert len(notices.lost) == 1

    woken.fails = False
    WakingDue(world.due, wake).put([entry], world.now)
    assert woken == [0]


def test_a_watcher_does_not_sleep_before_it_has_looked_for_parked_entries(world: World) -> None:
    parked = an_entry(world, -SECOND)
    world.due.put([parked], world.now + timedelta(minutes=50))
    lives(world, a_watcher(world))
    assert len(world.sent) == 1
