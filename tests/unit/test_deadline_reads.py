"""What it costs to skip a run that is picked up after the deadline of its job."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.builders import at
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World

BEGINNING = "11:58:30"

HOUR: dict[str, Any] = {"deadlineSec": 3_600}
SUCCEEDED, SKIPPED = RunState.SUCCEEDED, RunState.SKIPPED
_ABOVE = 20


def wide(world: World) -> Job:
    """A job with a deadline, below a parent with `_ABOVE` parents."""
    world.register("root", type="ONCE", schedule="2026-05-24T12:00:00Z")
    above = [f"above-{number}" for number in range(_ABOVE)]
    for name in above:
        world.register(name, **after("root"))
    world.register("parent", **after(*above))
    return world.register("late", **after("parent"), **HOUR)


@pytest.mark.parametrize(
    ("begun", "reads"),
    [
        pytest.param("12:00:01", 1, id="parent"),
        pytest.param("13:00:01", 1 + _ABOVE, id="parent and its parents"),
    ],
)
def test_what_is_above_a_run_that_began_in_time_is_not_read(
    world: World, begun: str, reads: int
) -> None:
    """To skip a run costs a read for its parents, however many jobs are above them."""
    late = wide(world)
    world.tick_at("12:00")
    world.worker().work_one()  # the root, which sends some of its children
    world.advance(milliseconds=100)
    world.tick()
    for _ in range(_ABOVE):
        world.worker().work_one()
    world.at(begun)
    world.tick()
    world.worker().work_one()  # the parent
    world.at("13:00:02")
    world.faults.calls.clear()
    world.worker().work()

    assert world.run(late, "12:00").state is SKIPPED
    assert Counter(world.faults.calls)["runs.between"] == reads


def test_a_run_whose_parent_was_skipped_in_time_and_reopened_late_runs(world: World) -> None:
    """The parent has no attempt from before the redrive above it."""
    a = world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z", **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    c = world.register("c", **after("b"), **HOUR)
    world.advance(minutes=90)

    world.sequences.redrive(world.run(a, "12:00").key, "a", downstream=False, reason=None)
    world.advance_and_work(seconds=2)

    assert states(world, a, b, c) == [SUCCEEDED] * 3
    assert world.run(b, "12:00").attempts[0].started_at > at("13:00")
