"""Watchers sleep when nothing is due soon, and not before they have looked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue
from nextfire.usecases.watcher_life import AWAKE_AT_LEAST, LOOK_EVERY, WOKEN_AT_LEAST
from tests.unit.sleeping.conftest import (
    LIFE,
    SECOND,
    SHARDS,
    Notices,
    Woken,
    a_watcher,
    an_entry,
    asleep,
    lives,
)
from tests.world import World


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


def test_a_watcher_does_not_sleep_before_it_has_looked_for_parked_entries(world: World) -> None:
    parked = an_entry(world, -SECOND)
    world.due.put([parked], world.now + timedelta(minutes=50))
    lives(world, a_watcher(world))
    assert len(world.sent) == 1


@pytest.mark.parametrize("before", [2, 3])
def test_a_watcher_of_fewer_groups_looks_for_parked_entries(world: World, before: int) -> None:
    lives(world, a_watcher(world, groups=before))
    assert asleep(world)
    parked = an_entry(world, -SECOND)
    assert parked.job.shard(SHARDS) == 1
    world.due.put([parked], world.now + timedelta(minutes=50))  # by the other group

    lives(world, a_watcher(world, "b"))

    assert len(world.sent) == 1


def test_a_group_that_was_gone_for_a_while_looks_for_parked_entries(world: World) -> None:
    lives(world, a_watcher(world))
    world.advance(minutes=11)
    parked = an_entry(world, -SECOND)
    world.due.put([parked], world.now + timedelta(minutes=50))  # by the group that had its shards

    lives(world, a_watcher(world, "b"))

    assert len(world.sent) == 1


def test_a_watcher_finds_what_is_due_before_the_cursor_of_a_clock_that_was_ahead(
    world: World,
) -> None:
    world.control.seed_cursors(SHARDS, world.now + 4 * 60 * SECOND)
    lives(world, a_watcher(world))
    watcher = a_watcher(world, "b")
    end_at = watcher.begin() + AWAKE_AT_LEAST
    while world.now < end_at:
        world.clock.sleep(watcher.turn(world.now) - world.now)
    world.register(type="DELAY", schedule="PT30S")

    assert not watcher.falls_asleep(LIFE)


@pytest.mark.parametrize("woken", [False, True])
def test_a_watcher_that_could_not_release_its_lease_stays_awake(
    world: World, *, woken: bool
) -> None:
    """A renewal that was stored without an answer: the lease is not the one to be released."""
    lives(world, a_watcher(world))
    watcher = a_watcher(world, "b")
    watcher.begin(woken=woken)
    watcher.turn(world.now)
    world.advance(seconds=WOKEN_AT_LEAST.total_seconds())
    world.faults.lose_answer("control.replace_lease")
    watcher.turn(world.now)
    assert watcher.holds

    assert not watcher.falls_asleep(LIFE)
    assert not asleep(world)

    world.advance(seconds=0.5)
    for _ in range(7):
        world.clock.sleep(watcher.turn(world.now) - world.now)
        assert not watcher.falls_asleep(LIFE)
    assert watcher.holds
