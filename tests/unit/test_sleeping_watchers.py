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
from nextfire.usecases.hold_lease import LIFE as LEASE_LIFE
from nextfire.usecases.hold_lease import PRESUMED_DEAD_AFTER
from nextfire.usecases.wake_watchers import AGAIN_AFTER, WakeWatchers, WakingDue
from nextfire.usecases.watcher_life import (
    AWAKE_AT_LEAST,
    LOOK_EVERY,
    WOKEN_AT_LEAST,
    WatcherLife,
)
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


def stands_by(
    world: World, *, woken: bool, holder_until: timedelta, died: bool = False
) -> tuple[WatcherLife, timedelta]:
    """A standby, and how long it stays while nothing is due. Another watcher holds the lease until
    *holder_until*, and then releases it unless it *died*.
    """
    world.control.seed_cursors(SHARDS, NOON)
    watcher = a_watcher(world, "standby")
    began = world.now
    end_at = watcher.begin(woken=woken) + LIFE
    while world.now < end_at:
        since = world.now - began
        if since <= holder_until:
            beat = int(since / SECOND)
            world.control.leases[0] = Lease("other", 1, beat, released=False, idle=True)
        elif not died and world.control.leases[0].holder == "other":
            world.control.leases[0] = Lease("other", 1, 1_000, released=True, idle=True)
        world.clock.sleep(watcher.turn(world.now) - world.now)
        if watcher.falls_asleep(LIFE):
            break
    return watcher, world.now - began


def test_a_standby_stays_as_long_as_another_holds_the_lease(world: World) -> None:
    """The holder may end by its age just after an entry was stored. Nothing is woken then."""
    watcher, stayed = stands_by(world, woken=False, holder_until=80 * SECOND)
    assert 80 * SECOND < stayed < 85 * SECOND
    assert world.control.leases[0].holder == "standby"
    assert asleep(world)
    assert not watcher.holds


def test_a_standby_takes_the_lease_of_a_dead_holder_and_releases_it(world: World) -> None:
    """Otherwise it would look held, and no writer would wake a watcher."""
    _, stayed = stands_by(world, woken=False, holder_until=5 * SECOND, died=True)
    assert 5 * SECOND + LEASE_LIFE < stayed < 15 * SECOND
    assert world.control.leases[0].holder == "standby"
    assert asleep(world)


def test_a_woken_watcher_ends_if_another_renews_the_lease(world: World) -> None:
    watcher, stayed = stands_by(world, woken=True, holder_until=LIFE)
    assert WOKEN_AT_LEAST <= stayed < 2 * SECOND
    assert not watcher.holds
    assert world.control.leases[0].holder == "other"


def test_a_woken_watcher_takes_the_lease_of_a_dead_holder(world: World) -> None:
    watcher, stayed = stands_by(world, woken=True, holder_until=timedelta(), died=True)
    assert LEASE_LIFE <= stayed < 10 * SECOND
    assert world.control.leases[0].holder == "standby"
    assert not watcher.holds


def test_a_woken_watcher_reads_the_lease_consistently(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale read could show a holder that has released the lease already."""
    read, asked = world.control.lease, set()

    def noted(group: int, *, consistent: bool = False) -> Lease | None:
        asked.add(consistent)
        return read(group, consistent=consistent)

    monkeypatch.setattr(world.control, "lease", noted)
    a_watcher(world).live(LIFE, sleeps=True, woken=True)
    assert asked == {True}
    asked.clear()
    a_watcher(world).live(LIFE, sleeps=True)
    assert asked == {False}


def test_a_woken_watcher_that_cannot_read_the_lease_stays(world: World) -> None:
    world.control.seed_cursors(SHARDS, NOON)
    watcher = a_watcher(world, "standby")
    watcher.begin(woken=True)
    for beat in range(3):
        world.control.leases[0] = Lease("other", 1, beat)
        watcher.turn(world.now)
        world.advance(seconds=0.5)
    world.faults.refuse("control.lease")
    watcher.turn(world.now)
    assert not watcher.falls_asleep(LIFE)


def test_a_woken_watcher_outlives_the_wake_ups_that_were_left_out() -> None:
    assert AGAIN_AFTER < WOKEN_AT_LEAST


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
        wake = WakeWatchers(world.control, woken, world.clock, Notices(), shards=1, groups=1)
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


def test_no_watcher_is_woken_for_an_entry_that_a_tick_finds(
    world: World, wake: WakeWatchers, woken: Woken
) -> None:
    WakingDue(world.due, wake).put([an_entry(world, LIFE)], world.now)
    assert not woken
    assert "control.lease" not in world.faults.calls


@pytest.mark.parametrize(
    ("renewed_before", "is_woken"),
    [
        (SECOND, False),
        (PRESUMED_DEAD_AFTER, False),
        (PRESUMED_DEAD_AFTER + SECOND, True),
        (None, False),  # a watcher of an older version does not store it
    ],
)
def test_a_watcher_is_woken_if_the_holder_must_be_dead(
    world: World,
    wake: WakeWatchers,
    woken: Woken,
    renewed_before: timedelta | None,
    *,
    is_woken: bool,
) -> None:
    renewed_at = None if renewed_before is None else world.now - renewed_before
    world.control.replace_lease(0, None, Lease("other", 1, 0, renewed_at=renewed_at))
    WakingDue(world.due, wake).put([an_entry(world, SECOND)], world.now)
    assert woken == [0] * is_woken


def test_a_holder_stores_when_it_renewed_its_lease(world: World) -> None:
    watcher = a_watcher(world)
    watcher.begin()
    watcher.turn(world.now)
    world.advance(seconds=2)
    watcher.turn(world.now)
    assert world.control.leases[0].renewed_at == world.now


def test_what_is_due_soon_counts_from_the_end_of_the_write(
    world: World, wake: WakeWatchers, woken: Woken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that takes long, with retries, must not hide that the entry is due soon by then."""
    began, put = world.now, world.due.put

    def slow(*args: Any) -> Any:
        world.advance(seconds=30)
        return put(*args)

    monkeypatch.setattr(world.due, "put", slow)
    WakingDue(world.due, wake).put([an_entry(world, LIFE + 10 * SECOND)], began)
    assert woken == [0]


def test_a_thread_does_not_call_while_another_calls(
    world: World, wake: WakeWatchers, woken: Woken, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = woken.wake

    def meanwhile(group: int) -> None:
        if not woken:
            call(group)
            wake.stored([an_entry(world, SECOND)])

    monkeypatch.setattr(woken, "wake", meanwhile)
    wake.stored([an_entry(world, SECOND)])
    assert woken == [0]


def test_the_group_of_the_shard_is_woken(world: World, woken: Woken) -> None:
    wake = WakeWatchers(world.control, woken, world.clock, Notices(), shards=4, groups=3)
    keys = [job_key(f"job-{number}") for number in range(40)]
    for key in keys:
        entry = DispatchEntry(key, UID, world.now, run_id=RUN, dispatch=2, pool="default")
        world.advance(seconds=1)
        wake.stored([entry])
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
