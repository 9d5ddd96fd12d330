"""What happens to the entries of a pool that was removed from the settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.due import FireEntry
from nextfire.domain.errors import ConflictError
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.world import World

BATCH = {"handler": "report", "pool": "batch"}
RETRIES = {"maxAttempts": 3, "initialDelayMs": 60_000}


def without_pool(world: World, **fields: object) -> Job:
    """A job whose run of 12:00 failed before its pool was removed. Its retry is due at 12:01."""
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}
    job = world.register(**(once | {"target": BATCH, "retryPolicy": RETRIES} | fields))  # type: ignore[arg-type]
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker(pool="batch").work_one()
    world.remove_pool("batch")
    return job


def test_a_retry_waits_a_day_for_its_pool_and_then_the_run_is_dead(world: World) -> None:
    job = without_pool(world)

    report = world.tick_at("12:01")

    assert (report.dispatched, report.undelivered) == ([], 1)
    world.advance(days=1, seconds=-1)
    world.tick()
    assert world.run(job, "12:00").state is RunState.PENDING

    world.advance(minutes=1)
    world.tick()
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.pool, run.attempt) == (RunState.DEAD, "batch", 2)
    assert run.attempts[-1].outcome is AttemptOutcome.FAILED
    assert run.reason is not None
    assert "'batch' no longer exists" in run.reason
    assert "redrive" in run.reason
    assert [event.detail["pool"] for event in world.events.published] == ["batch"]
    assert len(world.dead_letters.letters) == 1
    assert len(world.runner.calls) == 1
    assert world.entries == []
    assert world.job(job.key).state.ended


def test_a_message_of_a_removed_pool_that_comes_again_settles_again(world: World) -> None:
    job = without_pool(world)
    world.advance(days=2)
    world.tick()
    delivery = world.worker().receive()
    assert delivery is not None
    world.worker("a").handle(delivery)
    world.queue.queues["default"].send(delivery.body, group="again", dedup="again")

    handled = world.worker("b").work_one()

    assert handled.run is not None
    assert handled.run.state is RunState.DEAD
    assert world.run(job, "12:00").attempt == 2
    assert len(world.events.published) == 1


def test_a_waiting_retry_follows_its_job_to_another_pool(world: World) -> None:
    job = without_pool(world)
    world.tick_at("12:01")
    world.change(job, target=BATCH | {"pool": "default"})

    world.advance(minutes=1)
    world.tick()
    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_job_that_moves_after_its_run_was_given_up_has_its_run(world: World) -> None:
    job = without_pool(world)
    world.advance(days=2)
    world.tick()
    world.change(job, target=BATCH | {"pool": "default"})

    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_dead_run_of_a_removed_pool_is_redriven_after_its_job_has_moved(world: World) -> None:
    job = without_pool(world)
    world.advance(days=2)
    world.tick()
    world.worker().work_one()
    key = world.run(job, "12:00").key
    world.manage_runs = replace(world.manage_runs, pools=["default"])  # that were deployed
    with pytest.raises(ConflictError, match="no longer exists"):
        world.manage_runs.redrive(key, "once more")

    world.change(job, target=BATCH | {"pool": "default"})
    world.manage_runs.redrive(key, "once more")
    world.tick()
    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_retry_of_a_deleted_job_is_cancelled_at_once(world: World) -> None:
    job = without_pool(world)
    world.delete(job)

    world.tick_at("12:01")
    world.worker().work_one()

    assert world.run(job, "12:00").state is RunState.CANCELLED


def test_children_of_a_run_of_a_removed_pool_are_skipped(world: World) -> None:
    parent = without_pool(world)
    child = world.register("child", type="AFTER", schedule=None, after=[{"job": "report"}])
    world.advance(days=2)
    world.tick()

    world.worker().work()

    assert world.run(parent, "12:00").state is RunState.DEAD
    assert world.run(child, "12:00").state is RunState.SKIPPED


def test_occurrences_of_a_removed_pool_wait_and_fall_under_the_misfire_policy(
    world: World,
) -> None:
    job = world.register(target=BATCH, schedule="0 * * * *")
    world.remove_pool("batch")
    world.tick_at("12:00")
    world.advance(days=2)
    world.tick()
    (entry,) = world.entries
    assert isinstance(entry, FireEntry)

    world.change(job, target=BATCH | {"pool": "default"})
    world.advance_and_work(minutes=2)

    states = [run.state for run in world.runs.all.values()]
    assert states.count(RunState.SUCCEEDED) == 1
    assert RunState.DEAD not in states


def test_occurrences_of_a_deleted_job_of_a_removed_pool_are_recorded(world: World) -> None:
    """So its id can be used again."""
    job = world.register(target=BATCH, schedule="0 * * * *")
    world.remove_pool("batch")
    world.tick_at("12:00")
    world.advance(seconds=30)
    world.delete(job)

    world.advance_and_work(minutes=1)

    assert world.run(job, "12:00").state is RunState.CANCELLED
    assert world.entries == []
    world.advance(minutes=2)
    world.tick()
    world.register(target=BATCH | {"pool": "default"})


def test_a_watcher_that_dies_before_it_deletes_the_entry_sends_it_again(world: World) -> None:
    without_pool(world)
    world.advance(days=2)
    world.due.deletes = False
    world.tick()
    world.due.deletes = True

    world.new_watcher()
    world.tick()

    assert len(world.queue.queues["default"]) == 1, "the queue drops the second message"
    assert world.entries == []
