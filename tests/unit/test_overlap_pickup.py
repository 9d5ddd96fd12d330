"""Runs that an executor skips at their pickup, for their relevancy window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.accounting import assert_all_accounted_for, ran, settle
from tests.builders import MINUTELY, RUN_ALL
from tests.unit.overlapping import EXCLUSIVE, lose_the_worker
from tests.world import World

BEGINNING = "11:59:30"

# The relevancy window at dispatch and at pickup


def test_the_window_at_dispatch_and_at_the_pickup(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_ALL | {"relevancyWindowSec": 120})
    world.at("12:05:30")
    world.new_watcher()
    for _ in range(10):
        world.tick()
        world.advance(seconds=1)
    assert world.queued == ["report 12:04", "report 12:05"], "earlier ones are outside the window"

    world.at("12:06:30")
    world.worker().work()

    assert ran(world, job) == ["12:05"]
    run = world.run(job, "12:04")
    assert (run.state, run.pool) == (RunState.SKIPPED, "default")
    assert run.reason == "picked up 150 s late; relevancyWindowSec is 120 s"
    settle(world)
    assert_all_accounted_for(world, job)


def test_a_run_skipped_at_its_pickup_is_counted_and_acknowledged(world: World) -> None:
    world.register(**MINUTELY, misfire={"relevancyWindowSec": 10})
    world.tick_at("12:00")
    world.at("12:00:20")

    handled = world.worker().work_one()

    assert (handled.skipped, handled.started) == (True, False)
    assert world.queued == []
    assert world.runner.calls == []


def fails(world: World) -> None:
    world.script(exit_code=1)
    world.worker().work_one()
    world.advance(seconds=300)
    world.tick()


def is_handed_back(world: World) -> None:
    world.script(lasts=timedelta(seconds=5))
    world.worker().work_one(stopping=stops_later())
    world.advance(seconds=300)


def loses_its_worker(world: World) -> None:
    lose_the_worker(world)
    world.advance(seconds=300)


def stops_later() -> Callable[[], bool]:
    asked = iter([False, True])
    return lambda: next(asked, True)


@pytest.mark.parametrize("first", [fails, is_handed_back, loses_its_worker])
@pytest.mark.parametrize("overlap", ["ALLOW", *EXCLUSIVE])
def test_a_run_that_has_begun_is_not_too_late_for_its_window(
    world: World, first: Callable[[World], None], overlap: str
) -> None:
    job = world.register(misfire={"relevancyWindowSec": 10}, overlap=overlap)
    world.tick_at("12:00")
    first(world)
    world.tick()

    world.worker("b").work()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_retry_needs_no_reads_for_the_pickup_decision(world: World) -> None:
    world.register(misfire={"relevancyWindowSec": 10}, overlap="SKIP")
    world.tick_at("12:00")
    fails(world)
    world.faults.calls.clear()

    world.worker().work_one()

    assert not {"runs.skip", "runs.between"} & {*world.faults.calls}


def test_the_last_occurrence_skipped_at_its_pickup_completes_the_job(world: World) -> None:
    job = world.register(
        type="ONCE", schedule="2026-05-24T12:00:00Z", misfire={"relevancyWindowSec": 10}
    )
    world.tick_at("12:00")
    world.at("12:00:20")

    world.worker().work()

    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("calls", range(8))
def test_a_worker_that_dies_anywhere_while_it_skips_loses_nothing(calls: int) -> None:
    world = World("11:59:30")
    world.tick()
    job = world.register(
        type="ONCE", schedule="2026-05-24T12:00:00Z", misfire={"relevancyWindowSec": 10}
    )
    world.tick_at("12:00")
    world.at("12:00:20")
    world.dies(calls, world.worker().work)

    settle(world)

    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)
