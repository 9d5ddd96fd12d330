"""The children of a redriven run are handed over in any order: none starts before its parents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from nextfire.dataclass import replace
from nextfire.domain.instants import CLOCKS_DIFFER
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.builders import at
from tests.fakes import InlineExecutor
from tests.unit.redriving import DEAD, FOLLOW, RUN, SKIPPED, SUCCEEDED, redrive, run_key, work
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World

PENDING = RunState.PENDING
HOURLY = {"type": "CRON", "schedule": "0 * * * *"}


class Backwards(InlineExecutor):
    """Serves the last child first, as several threads may."""

    def map(self, fn: Callable[..., Any], *lists: Iterable[Any], **_: Any) -> Iterator[Any]:
        done = [fn(*each) for each in reversed([*zip(*lists, strict=True)])]
        return iter(done[::-1])


@pytest.fixture(params=[True, False])
def world(world: World, request: pytest.FixtureRequest) -> World:
    world.children = Backwards() if request.param else InlineExecutor()
    return world


def dead_top(world: World, rule: str, *, seconds: int = 30, **fields: Any) -> list[Job]:
    """A link dies, some *seconds* ago. Its child b has the *fields*; their common child has the
    *rule*.
    """
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a", **fields), **ONE_ATTEMPT)
    common = world.register("common", **after("a", "b", triggerRule=rule), **ONE_ATTEMPT)
    for _ in range(3):
        world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.runner.scripts.clear()
    world.advance(seconds=seconds)
    return [a, b, common]


@pytest.mark.parametrize("fields", [{}, HOURLY])
def test_a_run_awaits_a_parent_that_the_same_end_starts_again(
    world: World, fields: dict[str, Any]
) -> None:
    jobs = dead_top(world, "NONE_FAILED", **fields)
    assert states(world, *jobs) == [DEAD, SKIPPED, SKIPPED]

    world.manage_runs.redrive(run_key(jobs[0]), None)
    world.advance(seconds=2)
    world.tick()
    world.worker().work_one()
    assert states(world, *jobs) == [SUCCEEDED, PENDING, SKIPPED]
    world.script(exit_code=1)
    work(world)

    assert states(world, *jobs) == [SUCCEEDED, DEAD, SKIPPED]


def test_a_run_awaits_a_parent_that_a_clock_ahead_skipped(world: World) -> None:
    jobs = dead_top(world, "NONE_FAILED", seconds=1)
    for job in jobs[1:]:
        skipped = world.run(job, "12:00")
        world.runs.items[skipped.key] = replace(skipped, finished_at=at("12:00") + CLOCKS_DIFFER)

    world.manage_runs.redrive(run_key(jobs[0]), None)
    world.advance(seconds=2)
    world.tick()
    world.worker().work_one()

    assert states(world, *jobs) == [SUCCEEDED, PENDING, SKIPPED]


def test_a_run_that_follows_awaits_one_that_the_same_end_starts_again(world: World) -> None:
    jobs = dead_top(world, "ALL_DONE", triggerRule="ALL_DONE")
    assert states(world, *jobs) == [DEAD, DEAD, DEAD]

    done = redrive(world, jobs[0], "a", downstream=True)
    assert [action for action, _ in done.values()] == [RUN, FOLLOW, FOLLOW]
    world.advance(seconds=2)
    world.tick()
    world.worker().work_one()
    assert states(world, *jobs) == [SUCCEEDED, PENDING, SKIPPED]
    work(world)

    assert states(world, *jobs) == [SUCCEEDED] * 3


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_follows_awaits_one_below_a_run_that_is_skipped_again(
    world: World, *, changed: bool
) -> None:
    """Also if its job was repaired before the redrive."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    c = world.register("c", **after("b", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    common = world.register("common", **after("a", "c", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    for _ in range(3):
        world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, b, c, common) == [DEAD, SKIPPED, DEAD, DEAD]
    world.advance(seconds=30)
    if changed:
        world.change(c, labels={"repaired": "yes"})

    redrive(world, a, "a", downstream=True)
    world.advance(seconds=2)
    world.tick()
    world.script(exit_code=1)
    world.worker().work_one()
    assert states(world, a, b, c, common) == [DEAD, SKIPPED, PENDING, SKIPPED]
    work(world)

    assert states(world, a, b, c, common) == [DEAD, SKIPPED, SUCCEEDED, SUCCEEDED]


def test_an_alarm_does_not_start_because_a_parent_had_failed_before_the_redrive(
    world: World,
) -> None:
    jobs = dead_top(world, "ANY_FAILED", triggerRule="ANY_FAILED")
    assert states(world, *jobs) == [DEAD, DEAD, DEAD]

    redrive(world, jobs[0], "a", downstream=True)
    work(world)

    assert states(world, *jobs) == [SUCCEEDED, SKIPPED, SKIPPED]
    assert world.sent.count("common 12:00 #2") == 0


@pytest.mark.parametrize("below", [False, True])
def test_a_clean_up_that_never_started_awaits_a_parent_that_was_redriven(
    world: World, *, below: bool
) -> None:
    """Another branch ends while it runs again; or while a run above it does."""
    batch: dict[str, Any] = {"target": {"handler": "report", "pool": "batch"}}
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    other = world.register("other", **batch)
    parents = ("b", "other") if below else ("a", "other")
    cleanup = world.register("cleanup", **after(*parents, triggerRule="ALL_DONE"), **batch)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work()
    assert states(world, a, b) == [DEAD, SKIPPED]
    assert world.state(cleanup, "12:00") is None
    world.advance(seconds=30)

    world.manage_runs.redrive(run_key(a), None)
    world.worker(pool="batch").work()
    assert world.state(other, "12:00") is SUCCEEDED
    assert "cleanup 12:00" not in world.sent
    assert world.state(cleanup, "12:00") is None
    for _ in range(2):
        work(world)
        world.worker(pool="batch").work()

    assert states(world, a, b, cleanup) == [SUCCEEDED] * 3
