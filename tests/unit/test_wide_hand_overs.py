"""A run with many children is handed over to each of them, once."""

from __future__ import annotations

from collections import Counter

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.hand_over import MAX_SENT
from tests.unit.sequencing import after
from tests.world import World

BEGINNING = "11:58:30"


def wide(world: World, width: int) -> list[Job]:
    world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    children = [world.register(f"c{number:02}", **after("a")) for number in range(width)]
    world.tick_at("12:00")
    world.faults.calls.clear()
    return children


def refuse(world: World, nth: int) -> list[int]:
    """Refuse to read every *nth* child. Returns the numbers of the reads."""
    numbers: list[int] = []

    def throttle() -> None:
        numbers.append(len(numbers))  # 0: of the job itself
        if numbers[-1] and numbers[-1] % nth == 0:
            raise UnavailableError("throttled. Try again.")

    world.faults.call_before_each("jobs.get", throttle)
    return numbers


@pytest.mark.parametrize("nth", [7, 2])
def test_only_the_children_that_were_refused_are_tried_again(world: World, nth: int) -> None:
    children = wide(world, 60)
    refuse(world, nth)

    world.worker().work_one()

    assert Counter(world.faults.calls)["jobs.get"] == 1 + len(children)
    world.faults.clear()
    world.tick()
    world.worker().work()
    assert sorted(world.sent) == ["a 12:00", *(f"{c.key.job_id} 12:00" for c in children)]


def test_an_outage_ends_a_round_early(world: World) -> None:
    wide(world, 60)
    reads = refuse(world, 1)
    delivery = world.worker().receive()
    assert delivery is not None

    with pytest.raises(UnavailableError):
        world.worker().handle(delivery)

    rounds = 3  # one a second; the message of the run, which has ended, repeats them later
    assert rounds < len(reads) <= rounds * 20


@pytest.mark.parametrize("width", [MAX_SENT, MAX_SENT + 1])
def test_the_runs_of_many_children_pass_the_watcher(world: World, width: int) -> None:
    wide(world, width)

    world.worker().work_one()

    entries = [each.dispatch for each in world.entries if isinstance(each, DispatchEntry)]
    assert entries == ([] if width == MAX_SENT else [1] * width)
    assert len(world.queued) == width - len(entries)
    world.tick()
    world.worker().work()
    assert len(world.sent) == len({*world.sent}) == 1 + width


def test_a_wide_hand_over_leaves_room_in_the_queue_for_other_tenants() -> None:
    world = World("11:58:30")
    world.shares = Shares(backlogs={"default": 20})
    world.new_watcher()
    world.tick()
    world.register("other", tenant="beta", type="ONCE", schedule="2026-05-24T12:00:01Z")
    wide(world, 60)

    world.worker().work_one()
    for _ in range(3):
        world.advance(seconds=1)
        world.tick()

    assert len(world.queued) == 20
    for _ in range(12):
        world.worker().work_one()
    world.advance(seconds=1)
    world.tick()
    assert "other 12:00:01" in world.sent
