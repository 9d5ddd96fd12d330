"""Runs that wait for their destination: they take one run of a quota, and wait for a day."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.due import DispatchEntry
from nextfire.domain.job import Job
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from tests.builders import at
from tests.fakes import Killed
from tests.unit.auditing import purge
from tests.unit.backfilling import backfilled, begin
from tests.unit.calling import (
    FAILED,
    HTTP,
    IN_A_MINUTE,
    OK,
    UNAVAILABLE,
    Calls,
    dispatched,
    key,
    retries,
)
from tests.unit.limited import ONCE, a_world
from tests.unit.sequencing import after
from tests.world import World

PAUSED = Hold(at("12:01"), "the endpoint is paused", since=at("11:00"))


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def world(calls: Calls) -> World:
    world = World("11:59")
    world.call_targets[TargetKind.HTTP] = calls
    return world


def held_for(world: World, calls: Calls, hours: int) -> Job:
    """A run that is dispatched again *hours* after it was due, because of `calls.hold`."""
    job = dispatched(world, **ONCE)
    until = at("12:00") + timedelta(hours=hours)
    assert calls.hold is not None
    calls.hold = replace(calls.hold, until=until)
    world.worker("a").work_one()
    world.clock.move_to(until)
    world.tick()
    return job


def test_a_run_waits_for_a_day_and_is_then_skipped(world: World, calls: Calls) -> None:
    calls.hold = PAUSED
    job = held_for(world, calls, 25)

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    reason = "the endpoint is paused; not repeated: past a day of waiting"
    assert (calls.made, run.state, run.reason) == ([], RunState.SKIPPED, reason)
    assert not world.entries


@pytest.mark.parametrize(
    ("hours", "since"),
    [
        pytest.param(23, PAUSED.since, id="a shorter wait"),
        pytest.param(25, PAUSED.since and PAUSED.since + timedelta(hours=5), id="a later outage"),
        pytest.param(25, None, id="the destination is available"),
    ],
)
def test_a_run_goes_on_waiting(
    world: World, calls: Calls, hours: int, since: datetime | None
) -> None:
    calls.hold = replace(PAUSED, since=since)
    job = held_for(world, calls, hours)

    world.worker("a").work_one()

    assert world.runs.get(key(job)) is None
    [entry] = retries(world)
    assert entry.dispatch == 3


def test_a_run_that_failed_before_is_dead_after_a_day(world: World, calls: Calls) -> None:
    calls.results = [FAILED, OK]
    job = dispatched(world, retryPolicy={"maxAttempts": 3, "initialDelayMs": 10_000}, **ONCE)
    world.worker("a").work_one()
    calls.hold = PAUSED
    world.clock.move_to(at("12:00") + timedelta(hours=25))
    world.tick()

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (len(calls.made), run.state) == (1, RunState.DEAD)
    outcomes = [each.outcome for each in run.attempts]
    assert outcomes == [AttemptOutcome.FAILED, AttemptOutcome.FAILED]


def test_a_retry_that_was_to_be_cancelled_ends_although_its_endpoint_is_paused(
    world: World, calls: Calls
) -> None:
    calls.results = [FAILED]
    job = dispatched(world, retryPolicy={"maxAttempts": 3, "initialDelayMs": 10_000}, **ONCE)
    world.worker("a").work_one()
    run = world.run(job, "12:00")
    world.runs._store(replace(run, cancel_requested=True))  # noqa: SLF001
    calls.hold = PAUSED
    world.tick_at("12:00:20")

    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.CANCELLED


def test_a_redriven_run_waits_for_a_day_from_then_on(world: World, calls: Calls) -> None:
    """Its endpoint has been paused for days. Then it is DEAD again, so it can be redriven again."""
    calls.results = [FAILED, OK]
    policy: dict[str, Any] = {"retryPolicy": {"maxAttempts": 1}}
    job = dispatched(world, **policy, **ONCE)
    world.worker("a").work_one()
    calls.hold = replace(PAUSED, until=at("12:00") + timedelta(hours=60))
    world.clock.move_to(at("12:00") + timedelta(hours=48))

    world.manage_runs.redrive(key(job), None)
    world.tick()
    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.PENDING
    world.clock.move_to(calls.hold.until)
    calls.hold = replace(calls.hold, until=at("12:00") + timedelta(hours=73))
    world.tick()
    world.worker("a").work_one()
    assert world.run(job, "12:00").state is RunState.PENDING
    world.clock.move_to(calls.hold.until)
    world.tick()
    world.worker("a").work_one()
    assert (len(calls.made), world.run(job, "12:00").state) == (1, RunState.DEAD)
    assert len(world.events.published) == 2


def test_a_run_of_a_sequence_that_was_skipped_is_redriven_and_waits_again(
    world: World, calls: Calls
) -> None:
    """Its endpoint was paused for a day, and does not answer when the run starts again later."""
    calls.hold, calls.results = PAUSED, [UNAVAILABLE, OK]
    job = held_for(world, calls, 25)
    world.worker("a").work_one()
    assert world.run(job, "12:00").state is RunState.SKIPPED
    calls.hold = None
    world.advance(hours=25)

    world.sequences.redrive(key(job), "report", downstream=False, reason=None)
    world.tick()
    world.worker("a").work_one()
    assert world.run(job, "12:00").state is RunState.PENDING
    world.advance(seconds=30)
    world.tick()
    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_run_of_a_backfill_waits_for_a_day_from_its_dispatch_on(
    world: World, calls: Calls
) -> None:
    calls.hold = replace(PAUSED, until=at("12:00") + timedelta(days=3))
    job = world.register(target=HTTP)
    world.clock.move_to(at("12:00") + timedelta(days=2))
    begin(world, job, "08:00", "10:00")

    world.tick()
    world.worker("a").work()

    assert [run.state for run in backfilled(world, job)] == [RunState.PENDING] * 2


@pytest.mark.parametrize(
    "limit", [IN_A_MINUTE, after("a", deadlineSec=60, retryPolicy=IN_A_MINUTE["retryPolicy"])]
)
def test_a_deferred_run_that_waits_is_skipped_after_its_window_or_deadline(
    world: World, calls: Calls, limit: dict[str, Any]
) -> None:
    """Its first call was not possible, and since then its endpoint is down."""
    calls.results = [UNAVAILABLE]
    world.register("a", **ONCE)
    job = world.register(target=HTTP, **limit)
    world.tick_at("12:00")
    world.worker("a").work()
    world.worker("a").work()
    calls.hold = replace(PAUSED, until=at("12:02"), since=at("12:00"))

    for time in ("12:00:59", "12:02"):
        world.tick_at(time)
        world.worker("a").work()

    run = world.run(job, "12:00")
    assert (len(calls.made), run.state, run.attempt) == (1, RunState.SKIPPED, 0)
    assert "picked up again 120 s" in str(run.reason)
    assert not [each for each in world.entries if isinstance(each, DispatchEntry)]


def test_a_run_that_was_cancelled_while_it_waited_is_no_probe(world: World, calls: Calls) -> None:
    """As the probe it would make no call, and the endpoint would stay OPEN for another interval."""
    calls.hold = replace(PAUSED, until=at("12:01"))
    job = dispatched(world, maxParallel=1, **ONCE)
    world.worker("a").work_one()
    world.manage_runs.cancel(key(job), None)
    admitted = len(calls.first)
    world.tick_at("12:01")

    handled = world.worker("a").work_one()

    assert handled.reason == "has ended CANCELLED"
    assert len(calls.first) == admitted


def test_a_run_that_was_cancelled_before_it_waited_is_handed_over_at_once(
    world: World, calls: Calls
) -> None:
    job = dispatched(world, **ONCE)
    clean_up = world.register("clean-up", **after("report", triggerRule="ALL_DONE"))
    world.manage_runs.cancel(key(job), None)
    calls.hold = PAUSED

    world.worker().work()

    assert retries(world) == []
    assert world.state(clean_up, "12:00") is RunState.SUCCEEDED


def test_a_lost_run_whose_endpoint_is_paused_waits_for_a_dispatch_after_the_received_one(
    world: World, calls: Calls
) -> None:
    """Otherwise, the queue drops the later message as a duplicate."""
    job = dispatched(world, retryPolicy={"maxAttempts": 3}, **ONCE)
    calls.meanwhile = _die
    with pytest.raises(Killed):
        world.worker("a").work_one()
    purge(world)
    calls.hold = replace(PAUSED, until=at("12:10"))
    world.at("12:02")
    again = job.dispatch_entry(key(job), world.now, 2)
    world.due.put([again], world.now)
    world.tick()

    world.worker("b").work_one()

    [entry] = retries(world)
    assert entry.dispatch == 3


def _die() -> None:
    raise Killed


def test_a_run_that_waits_takes_one_run_of_its_tenants_quota(calls: Calls) -> None:
    world = a_world(runsPerMinute=2)
    world.call_targets[TargetKind.HTTP] = calls
    calls.hold = PAUSED
    for number in range(2):
        world.register(f"held{number}", target=HTTP, **ONCE)
    world.tick_at("12:00")
    for _ in range(2):
        world.worker("a").work_one()
    for number in range(2):
        world.register(f"other{number}", type="ONCE", schedule="2026-05-24T12:01:30Z")

    world.tick_at("12:01")
    world.tick_at("12:01:30")

    sent = Counter(message.job_id for message in world.queue.log)
    assert sent == {"held0": 2, "held1": 2, "other0": 1, "other1": 1}


def test_a_run_that_runs_is_not_deferred_when_its_message_is_received_again(
    world: World, calls: Calls
) -> None:
    """Slow stores delayed its claim, so its message was visible before the first heartbeat. Without
    the message, the next run of its group could start.
    """
    job = dispatched(world, overlap="QUEUE")
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.advance(seconds=59)

    def receive_again() -> None:
        world.advance(seconds=2)
        calls.hold = PAUSED
        world.worker("b").work_one()

    calls.meanwhile = receive_again
    world.worker("a").handle(delivery)

    assert retries(world) == []
    assert world.queued == ["report 12:00"], "it is deleted once it is received again"
    assert world.run(job, "12:00").state is RunState.SUCCEEDED
