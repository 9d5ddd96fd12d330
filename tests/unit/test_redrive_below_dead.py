"""Redrives from a run that was SKIPPED because of its parent, which stays DEAD: a user asked for
them, so no deadline or window from before applies.
"""

from __future__ import annotations

from typing import Any

from nextfire.domain.target import TargetKind
from tests.unit.calling import FAILED, HTTP, OK, UNAVAILABLE, Calls, dispatched
from tests.unit.redriving import DEAD, SKIPPED, SUCCEEDED, redrive, work
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.unit.test_sequence_deadlines import HOUR, timed_chain
from tests.world import World


def test_a_child_that_was_added_before_a_late_redrive_runs(world: World) -> None:
    a, b, c = timed_chain(world, **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.tick_at("12:00")
    world.worker().work()
    assert states(world, a, b, c) == [DEAD, SKIPPED, SKIPPED]
    world.advance(minutes=61)
    d = world.register("d", **after("b"), **HOUR)

    redrive(world, a, "b")
    work(world, seconds=2)

    assert states(world, a, b, c, d) == [DEAD, SUCCEEDED, SUCCEEDED, SUCCEEDED]


def test_a_call_waits_for_its_destination_although_its_window_is_over() -> None:
    world, calls = World("11:59"), Calls(results=[FAILED, UNAVAILABLE, OK])
    world.call_targets[TargetKind.HTTP] = calls
    report = dispatched(world, **ONE_ATTEMPT)
    window: dict[str, Any] = {"misfire": {"relevancyWindowSec": 60}}
    child = world.register("child", target=HTTP, **after("report"), **window)
    world.worker().work()
    assert states(world, report, child) == [DEAD, SKIPPED]
    world.at("12:02")

    redrive(world, report, "child")
    work(world, seconds=0)
    work(world, seconds=30)

    assert states(world, report, child) == [DEAD, SUCCEEDED]
