"""Manual runs and occurrences of a job follow its overlap policy."""

from __future__ import annotations

from nextfire.domain.run import Run, RunState, Trigger
from tests.accounting import assert_all_accounted_for, settle
from tests.builders import MINUTELY, at
from tests.unit.requested import MANUAL, run_now, stored
from tests.world import World

BEGINNING = "11:58:30"

# Overlap


def test_queue_waits_for_the_run_before(world: World) -> None:
    job = world.register(overlap="QUEUE", **MINUTELY)
    world.tick_at("11:59")
    first = world.worker().receive()
    assert first is not None
    run_now(world, job, asked_at=at("11:59:05.5"))
    world.advance(seconds=6)
    world.tick()

    assert world.worker("b").receive() is None, "all runs of the job share one group"
    world.worker().handle(first)
    assert world.worker("b").work_one().run is not None


def test_skip_skips_a_manual_run(world: World) -> None:
    job = world.register(overlap="SKIP", **MINUTELY)
    world.tick_at("11:59")
    asked: list[Run] = []

    def meanwhile() -> None:
        world.advance(seconds=1)
        asked.append(run_now(world, job, payload="7", reason="why not"))
        world.advance(seconds=1)

    world.script(meanwhile=meanwhile)
    world.worker().work_one()
    world.tick()
    handled = world.worker().work_one()

    run = stored(world, asked[0])
    assert (run.state, run.attempts, handled.skipped) == (RunState.SKIPPED, (), True)
    assert "had not ended" in (run.reason or "")
    assert (run.trigger, run.payload, run.request_reason) == (Trigger.MANUAL, "7", "why not")
    settle(world)
    assert_all_accounted_for(world, job)


def test_skip_skips_an_occurrence_during_a_manual_run(world: World) -> None:
    job = world.register(overlap="SKIP", **MINUTELY)
    world.at("11:58:59.5")
    run = run_now(world, job)
    world.tick()
    world.script(meanwhile=lambda: world.tick_at("11:59:01"))
    world.worker().work_one()
    world.worker().work()

    assert stored(world, run).state is RunState.SUCCEEDED
    assert world.run(job, "11:59").state is RunState.SKIPPED
    settle(world)
    assert_all_accounted_for(world, job)


def test_replace_ends_the_run_before(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    world.tick_at("11:59")
    asked: list[Run] = []

    def meanwhile() -> None:
        world.advance(seconds=1)
        asked.append(run_now(world, job))
        world.tick()
        world.advance(seconds=5)  # workers check for a cancel every 4 s

    world.script(meanwhile=meanwhile)
    world.worker().work_one()
    replaced = world.run(job, "11:59")
    assert replaced.state is RunState.CANCELLED
    assert asked[0].key.execution_id in (replaced.reason or "")
    world.worker().work_one()
    assert stored(world, asked[0]).state is RunState.SUCCEEDED


def test_replace_ends_a_run_on_request_for_an_occurrence(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    run = run_now(world, job)
    world.tick()
    world.script(meanwhile=lambda: world.tick_at("11:59"))
    world.worker().work_one()
    world.worker().work()
    assert stored(world, run).state is RunState.CANCELLED
    assert world.run(job, "11:59").state is RunState.SUCCEEDED


def test_no_more_than_twenty_are_outstanding(world: World) -> None:
    job = world.register(overlap="QUEUE", **MANUAL)
    for number in range(22):
        run_now(world, job, str(number))
        world.advance(seconds=0.01)
    world.tick()
    assert len(world.queued) == 20
    settle(world)
    assert {run.state for run in world.runs.all.values()} == {RunState.SUCCEEDED}


def test_runs_on_request_of_a_job_that_allows_it_go_side_by_side(world: World) -> None:
    job = world.register(**MANUAL)
    for number in range(3):
        run_now(world, job, str(number))
    world.tick()
    assert all(world.worker(name).receive() is not None for name in "abc")
