"""Jobs with a schedule and parents: a run needs its time to come, and its parents to succeed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.builders import RUN_ALL, at
from tests.fakes import Killed
from tests.unit.auditing import audit, purge
from tests.unit.requested import run_now
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.unit.timed import HOURLY, cron
from tests.world import World

BEGINNING = "11:58:30"


def test_a_run_starts_when_its_time_has_come_and_its_parent_has_succeeded(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY))

    world.tick_and_work("12:00")

    run = world.run(b, "12:00")
    assert (run.state, run.dispatch) == (RunState.SUCCEEDED, 1)
    assert run.dispatch_reason == "ALL_SUCCEEDED: a SUCCEEDED"
    assert not [each for each in world.entries if isinstance(each, DispatchEntry)], "has no end"


def test_an_occurrence_that_a_range_covers_does_not_begin(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY))
    world.tick_at("12:00")
    first = b.run_key(at("11:00"))
    world.runs.skip(Run.skipped(first, "late", world.now, covered_to=at("12:00"), covered=2))

    world.at("12:10")
    world.worker().work()

    assert world.state(b, "12:00") is None
    assert not world.joins.read(b.run_key(at("12:00")), [0])


def test_a_parent_that_ends_after_the_time_starts_the_run(world: World) -> None:
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 60_000})
    b = world.register("b", **cron(HOURLY))
    world.script(exit_code=1)

    world.tick_and_work("12:00")
    assert world.state(b, "12:00") is None
    world.tick_and_work("12:01:05")

    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_a_parent_that_ends_before_the_time_does_not_start_the_run(world: World) -> None:
    world.register("a")
    b = world.register("b", jitterSec=3_000, **cron(HOURLY))

    world.tick_and_work("12:00")
    assert world.state(b, "12:00") is None
    world.tick_and_work("12:50")

    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_a_run_whose_parent_failed_is_skipped_and_redriven_with_it(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **cron(HOURLY))
    c = world.register("c", type="AFTER", schedule=None, after=[{"job": "b"}])
    world.script(exit_code=1)

    world.tick_and_work("12:00")
    run = world.run(b, "12:00")
    assert (run.state, run.reason) == (RunState.SKIPPED, "trigger rule ALL_SUCCEEDED: a FAILED")
    assert world.state(c, "12:00") is RunState.SKIPPED

    world.advance(seconds=20)
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.tick_and_work("12:01", "12:01:01")

    assert [world.state(job, "12:00") for job in (a, b, c)] == [RunState.SUCCEEDED] * 3


@pytest.mark.parametrize("dies", [False, True])
def test_a_dead_run_follows_its_parent_when_the_sequence_is_redriven(
    world: World, *, dies: bool
) -> None:
    """Even if the first executor that received its time died."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", overlap="QUEUE", **ONE_ATTEMPT, **cron(HOURLY))
    world.script()
    world.script(exit_code=1)
    world.tick_at("12:00")
    if dies:
        world.faults.call_before_next("joins.add", _die)
        with pytest.raises(Killed):
            world.worker("first").work()
    world.tick_and_work("12:00:01", "12:01:02", "12:01:04")
    assert [world.state(job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED, RunState.DEAD]
    # The parent is redriven too, although it succeeded: as after a cancel.
    world.runs.items[world.run(a, "12:00").key] = replace(
        world.run(a, "12:00"), state=RunState.CANCELLED
    )
    world.advance(seconds=20)

    key = world.run(a, "12:00").key
    world.sequences.redrive(key, "a", downstream=True, reason=None)
    world.tick_and_work("12:02", "12:02:01")

    assert [world.state(job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED] * 2


def test_a_skipped_run_whose_executor_was_overtaken_by_a_redrive_starts(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", priority="LOW", **cron(HOURLY))
    world.script(exit_code=1)
    world.tick_at("12:00")
    world.worker().work_one()
    slow = world.worker("slow")
    message = slow.receive()
    assert message is not None

    def redrive() -> None:
        world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
        world.advance_and_work(seconds=1)

    world.faults.call_before_next("runs.skip", redrive)
    slow.handle(message)
    world.tick_and_work("12:01", "12:02")

    assert [world.state(job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED] * 2


def test_a_run_whose_time_was_not_noted_follows_its_redriven_parent(world: World) -> None:
    """The executor that received its time died, and the message is in the dead-letter queue."""
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", joinTimeoutSec=60, **cron(HOURLY))
    world.script(exit_code=1)
    world.tick_at("12:00")
    world.faults.call_before_next("joins.add", _die)
    with pytest.raises(Killed):
        world.worker("first").work()
    assert world.state(a, "12:00") is RunState.DEAD
    purge(world)
    world.tick_and_work("12:01:10")
    assert world.state(b, "12:00") is RunState.SKIPPED

    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    world.tick_and_work("12:02", "12:02:01")

    assert [world.state(job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED] * 2


def test_a_join_that_ends_names_the_missing_parents(world: World) -> None:
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 600_000})
    b = world.register("b", joinTimeoutSec=60, **cron(HOURLY))
    world.script(exit_code=1)

    world.tick_and_work("12:00", "12:00:59", "12:01:05")

    run = world.run(b, "12:00")
    assert (run.state, run.reason) == (RunState.SKIPPED, "joinTimeoutSec is 60 s; missing: a")
    world.tick_and_work("12:10:30")
    assert world.record(b, "12:00") == run, "a parent that ends later does not start it"


def test_an_occurrence_of_the_parent_alone_costs_the_child_nothing(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron("0 13 * * *"))

    world.tick_and_work("12:00")

    assert world.state(b, "12:00") is None
    assert all(key.job.job_id != "b" for key, _ in world.joins.items)
    world.tick_and_work("13:00")
    assert world.state(b, "13:00") is RunState.SUCCEEDED


def test_a_run_on_request_does_not_wait(world: World) -> None:
    world.register("a", type="MANUAL", schedule=None)
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=60))

    asked = run_now(world, b)
    world.tick_and_work("11:59")

    assert world.runs.items[asked.key].state is RunState.SUCCEEDED


def test_an_occurrence_of_a_job_that_lost_its_schedule_is_accounted_for(world: World) -> None:
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 600_000})
    b = world.register("b", joinTimeoutSec=60, **cron(HOURLY))
    world.script(exit_code=1)
    world.tick_and_work("12:00")

    world.change(b, type="AFTER", schedule=None)
    world.tick_and_work("12:01:05")

    assert world.run(b, "12:00").reason == "joinTimeoutSec is 60 s; missing: a"


def test_a_delay_counts_from_the_end_of_the_parent(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY, delaySec=90))

    world.tick_and_work("12:00", "12:01")
    assert world.state(b, "12:00") is None
    world.tick_and_work("12:01:31")

    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_the_time_of_a_deleted_job_is_recorded_as_cancelled(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY))
    world.tick_at("12:00")
    world.delete(b)
    world.worker().work()

    run = world.run(b, "12:00")
    assert (run.state, run.dispatch) == (RunState.CANCELLED, 1)


LATE: dict[str, Any] = {"target": {"handler": "a", "pool": "batch"}} | ONE_ATTEMPT


@pytest.mark.parametrize(
    ("when", "then"),
    [
        (cron(HOURLY), JobState.ACTIVE),
        (cron("2026-05-24T12:00:00Z") | {"type": "ONCE"}, JobState.COMPLETED),
    ],
)
def test_a_parent_that_fails_after_the_time_skips_the_runs_below(
    world: World, when: dict[str, Any], then: JobState
) -> None:
    """The job is completed if the run was its last one."""
    world.register("a", **LATE)
    b = world.register("b", **when)
    c = world.register("c", **after("b"))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert world.state(b, "12:00") is None

    world.worker(pool="batch").work()

    assert [world.state(job, "12:00") for job in (b, c)] == [RunState.SKIPPED] * 2
    assert world.job(b.key).state is then


def test_a_parent_that_ends_while_the_time_is_noted_starts_the_run(world: World) -> None:
    world.register("a", **LATE)
    b = world.register("b", **cron(HOURLY))
    world.faults.call_before_next("joins.add", lambda: world.worker(pool="batch").work())

    world.tick_and_work("12:00")

    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_a_time_that_comes_before_the_parents_end_reads_the_record_once(world: World) -> None:
    world.register("a", **LATE)
    world.register("b", **cron(HOURLY))
    world.tick_at("12:00")
    world.faults.calls.clear()

    world.worker().work()

    assert world.faults.calls.count("runs.get") == 1


def test_the_end_of_a_join_starts_a_run_whose_parent_was_not_handed_over(world: World) -> None:
    world.register("a", **LATE)
    b = world.register("b", joinTimeoutSec=60, **cron(HOURLY))
    world.tick_and_work("12:00")
    world.faults.call_before_next("joins.read", _die)
    with pytest.raises(Killed):
        world.worker(pool="batch").work()
    purge(world)

    world.tick_and_work("12:01:02")

    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_the_run_of_a_job_that_was_paused_meanwhile_is_skipped(world: World) -> None:
    world.register("a", **LATE)
    b = world.register("b", **cron(HOURLY))
    world.tick_and_work("12:00")
    world.pause(b)

    world.worker(pool="batch").work()
    world.worker().work()

    run = world.run(b, "12:00")
    assert (run.state, run.reason) == (RunState.SKIPPED, "its job was paused")


def test_an_audit_repeats_the_time_of_a_run_a_while_after_its_join_has_ended(world: World) -> None:
    """The message that ends it may be in progress until then."""
    world.register("a", **LATE)
    b = world.register("b", joinTimeoutSec=60, misfire=RUN_ALL, **cron("0 12 * * *"))
    world.tick_and_work("14:00")
    world.tick_at("14:01:10")
    world.queue.queues["default"]._messages.clear()  # noqa: SLF001 — the system does not notice

    assert audit(world).resent == 0
    world.tick_at("14:30")
    assert audit(world).resent == 1
    assert world.state(b, "12:00") is None


def _die() -> None:
    raise Killed


# Crashes


@pytest.mark.parametrize("which", [{}, {"which": "all"}, {"which": "latest", "withinSec": 60}])
def test_an_executor_that_dies_anywhere_loses_nothing(which: dict[str, Any]) -> None:
    died = True
    calls = 0
    while died:
        world = World("11:58:30")
        world.tick()
        world.register("a")
        b = world.register("b", **cron(HOURLY, **which))
        world.tick_at("12:00")
        died = world.dies(calls, world.worker("x").work)
        calls += died
        for _ in range(4):
            world.advance(seconds=61)
            world.tick()
            world.worker("y").work()
        assert world.state(b, "12:00") is RunState.SUCCEEDED, calls
    assert calls > 10
