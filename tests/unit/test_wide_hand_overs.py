"""A run with many children is handed over to each of them, once."""

from __future__ import annotations

from collections import Counter

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from tests.unit.test_sequences import after
from tests.world import World


@pytest.fixture
def world() -> World:
    world = World("11:58:30")
    world.tick()
    return world


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

    rounds = 60  # one a second, until the lease ends
    assert rounds < len(reads) <= rounds * 20
