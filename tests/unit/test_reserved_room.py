"""The last tenth of a pool's queue is for tenants that have nothing waiting for room."""

from __future__ import annotations

from collections import Counter

import pytest

from nextfire.usecases.dispatch.gates import Shares
from tests.builders import SKIP, a_message, run_key
from tests.world import World

BOUND = 200  # so 20 places are reserved: 2 for each tenant and reading of the backlog


@pytest.fixture
def full(world: World) -> World:
    """A queue that one tenant fills as far as it may: its first runs get a part too."""
    world.shares = Shares(backlogs={"default": BOUND})
    world.new_watcher()
    register(world, "whale", 250)
    world.tick_at("12:00")
    assert sent(world) == {"whale": 182}
    return world


def register(world: World, tenant: str, number: int, second: float = 0) -> None:
    for job in range(number):
        due = f"2026-05-24T12:00:{second:04.1f}Z"
        world.register(f"at{10 * second:.0f}-{job}", tenant=tenant, type="ONCE", schedule=due)


def sent(world: World) -> Counter[str]:
    return Counter(message.tenant for message in world.queue.log)


def test_others_get_a_part_of_it_each(full: World) -> None:
    for tenant in ("minnow", "sprat"):
        register(full, tenant, 5, second=0.4)

    full.tick_at("12:00:00.5")

    assert sent(full) == {"whale": 182, "minnow": 2, "sprat": 2}


def test_who_waits_gets_no_part_of_the_next_reading(full: World) -> None:
    """Its first runs are not even tried again yet."""
    register(full, "minnow", 5, second=0.4)
    register(full, "sprat", 2, second=0.4)
    full.tick_at("12:00:00.5")
    for tenant in ("minnow", "sprat"):
        register(full, tenant, 2, second=1.2)

    full.tick_at("12:00:01.2")

    assert sent(full) == {"whale": 182, "minnow": 2, "sprat": 4}


def test_who_waited_for_the_watcher_before_gets_none(full: World) -> None:
    register(full, "minnow", 5, second=0.4)
    full.tick_at("12:00:00.5")
    register(full, "minnow", 2, second=4)
    full.new_watcher()

    full.tick_at("12:00:04")

    assert sent(full) == {"whale": 182, "minnow": 2}


def test_the_bound_of_the_queue_holds_for_any_number_of_tenants(full: World) -> None:
    for number in range(11):
        register(full, f"minnow{number}", 3, second=0.4)

    full.tick_at("12:00:00.5")

    assert sent(full).total() == BOUND


@pytest.mark.parametrize(("bound", "sent_at_once"), [(99, 99), (100, 91)])
def test_a_small_queue_has_none(world: World, bound: int, sent_at_once: int) -> None:
    world.shares = Shares(backlogs={"default": bound})
    world.new_watcher()
    register(world, "whale", 120)

    world.tick_at("12:00")

    assert sent(world) == {"whale": sent_at_once}


@pytest.mark.parametrize(("bound", "reads"), [(5, 2), (50, 1)])
def test_a_backlog_is_read_again_after_a_second_if_the_queue_is_full(
    world: World, bound: int, reads: int
) -> None:
    world.shares = Shares(backlogs={"default": bound})
    world.new_watcher()
    for tenths in range(1, 20):
        register(world, "acme", 1, second=tenths / 10)
    for tenths in range(1, 20):
        world.tick_at(f"12:00:{tenths / 10:04.1f}")

    assert world.faults.calls.count("queue.backlog") == reads


@pytest.fixture
def skipping(world: World) -> World:
    """A queue of two places. Two occurrences were missed, and one run is due."""
    world.shares = Shares(backlogs={"default": 2})
    world.new_watcher()
    world.tick()
    for number in range(2):
        world.register(f"skips{number}", type="CRON", schedule="0 * * * *", misfire=SKIP)
    world.register("runs", type="ONCE", schedule="2026-05-24T12:30:00Z")
    return world


def test_skipped_occurrences_take_no_room(skipping: World) -> None:
    skipping.tick_at("12:30")

    assert skipping.queued == ["runs 12:30"]


def test_skipped_occurrences_wait_for_room(skipping: World) -> None:
    for number in range(2):
        message = a_message(run_key(job_id=f"other{number}"))
        skipping.queue.send([("default", message)])
    for second in range(0, 6, 2):
        skipping.tick_at(f"12:30:{second:02}")
    assert not skipping.runs.all

    skipping.queue.queues["default"].purge()
    for second in range(6, 12, 2):
        skipping.tick_at(f"12:30:{second:02}")

    assert len(skipping.runs.all) == 2
