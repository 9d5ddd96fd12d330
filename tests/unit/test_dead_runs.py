"""Dead runs: published once, and redriven."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.errors import UnavailableError
from nextfire.domain.events import EventKind
from nextfire.domain.ids import dedup_id
from nextfire.domain.run import Run, RunState
from tests.builders import a_retry, at
from tests.dispatched import FAILS, die, dispatched, outcomes, redeliver
from tests.fakes import Killed, raise_killed
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World


def redrive(world: World, run: Run) -> Run:
    to = run.redriven("redriven on request", world.now)
    world.runs.redrive(to, a_retry(run.key, world.now, dispatch=to.dispatch), world.now)
    return to


def test_a_death_is_published_once_however_often_its_message_comes(world: World) -> None:
    job = die(world)
    run = world.run(job, "12:00")

    redeliver(world)
    handled = world.worker().work_one()

    assert handled.reason == "has ended DEAD"
    (event,) = world.events.published
    assert event.kind is EventKind.EXECUTION_DEAD
    assert event.detail == {
        "version": 1,
        "id": dedup_id(run.key, 1),
        "tenant": "acme",
        "jobId": "report",
        "executionId": run.key.execution_id,
        "scheduledAt": "2026-05-24T12:00:00Z",
        "pool": "default",
        "attempt": 1,
        "outcome": "FAILED",
        "exitCode": 1,
        "reason": "exit code 1",
        "finishedAt": "2026-05-24T12:00:00Z",
    }
    assert len(world.dead_letters.letters) == 1


@pytest.mark.parametrize("deleted", [False, True])
def test_an_outage_of_the_event_bus_does_not_take_slots(world: World, *, deleted: bool) -> None:
    """The run has ended. Its message, which is delivered again, publishes its death, also if its
    job is deleted meanwhile.
    """
    job = dispatched(world, **ONE_ATTEMPT)
    world.script(**FAILS)
    world.faults.refuse("events.put", 100)

    with pytest.raises(UnavailableError):
        world.worker().work_one()

    assert world.now - at("12:00") < timedelta(seconds=5)
    assert world.run(job, "12:00").state is RunState.DEAD
    world.faults.clear()
    if deleted:
        world.delete(job)
    world.advance(minutes=2)
    world.worker().work_one()
    assert [event.kind for event in world.events.published] == [EventKind.EXECUTION_DEAD]
    assert len(world.dead_letters.letters) == 1


def test_an_outage_of_the_event_bus_does_not_delay_a_clean_up(world: World) -> None:
    job = dispatched(world, **ONE_ATTEMPT)
    clean_up = world.register("clean-up", **after("report", triggerRule="ALL_DONE"))
    world.script(**FAILS)
    world.faults.refuse("events.put", 100)

    with pytest.raises(UnavailableError):
        world.worker().work_one()
    world.worker().work_one()

    assert world.state(job, "12:00") is RunState.DEAD
    assert world.state(clean_up, "12:00") is RunState.SUCCEEDED


def test_a_long_outage_of_the_event_bus_stores_a_dead_letter_twice_at_most(world: World) -> None:
    """Later deliveries of its message find out whether the bus answers before they store it."""
    dispatched(world, **ONE_ATTEMPT)
    world.script(**FAILS)
    world.faults.refuse("events.put", 1_000)

    for _ in range(60):
        with suppress(UnavailableError):
            world.worker().work()
        world.advance(minutes=1)
    assert len(world.dead_letters.letters) == 1
    world.faults.clear()
    world.worker().work()

    assert [event.kind for event in world.events.published] == [EventKind.EXECUTION_DEAD]
    assert len(world.dead_letters.letters) == 2


def test_a_death_whose_worker_died_is_published_by_the_next_one(world: World) -> None:
    dispatched(world, **ONE_ATTEMPT)
    world.script(**FAILS)

    world.faults.call_before_next("dead_letters.put", raise_killed)
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.advance(minutes=2)
    world.worker("b").work_one()

    assert (len(world.dead_letters.letters), len(world.events.published)) == (1, 1)


def test_one_refused_event_is_sent_again_at_once(world: World) -> None:
    dispatched(world, **ONE_ATTEMPT)
    world.script(**FAILS)
    world.faults.refuse("events.put")

    world.worker().work_one()

    assert [event.kind for event in world.events.published] == [EventKind.EXECUTION_DEAD]


def test_a_message_that_does_not_decode_is_published(world: World) -> None:
    world.queue.queues["default"].send("{}", group="g", dedup="d")

    world.worker().work_one()

    (event,) = world.events.published
    assert (event.kind, event.detail["pool"]) == (EventKind.MESSAGE_UNDECODABLE, "default")
    assert "not a run message" in str(event.detail["reason"])


def test_a_redriven_run_gets_all_attempts_and_continues_its_numbers(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 2, "initialDelayMs": 10_000})
    for _ in range(2):
        world.script(**FAILS)
        world.worker("a").work_one()
        world.advance(seconds=10)
        world.tick()
    assert world.run(job, "12:00").state is RunState.DEAD

    redrive(world, world.run(job, "12:00"))
    world.script(**FAILS)
    world.tick()
    world.worker("b").work_one()
    waiting = world.run(job, "12:00")
    retry_at = world.now + timedelta(seconds=10)
    assert (waiting.state, waiting.not_before) == (RunState.PENDING, retry_at)
    world.advance(seconds=10)
    world.tick()
    world.worker("b").work_one()

    run = world.run(job, "12:00")
    assert outcomes(run) == [
        (1, "a", AttemptOutcome.FAILED),
        (2, "a", AttemptOutcome.FAILED),
        (3, "b", AttemptOutcome.FAILED),
        (4, "b", AttemptOutcome.SUCCEEDED),
    ]
    assert run.state is RunState.SUCCEEDED


def test_a_redrive_at_once_is_not_taken_for_a_repetition(world: World) -> None:
    """A worker stored a retry and died before it recorded that, so dispatch 2 was sent."""
    job = dispatched(world, retryPolicy={"maxAttempts": 2})
    world.script(**FAILS)

    world.faults.call_before_next("runs.advance", raise_killed)
    with pytest.raises(Killed):
        world.worker("a").work_one()
    world.at("12:02")
    world.tick()  # sends the second dispatch
    world.script(**FAILS)
    world.worker("b").work()  # dispatch 1: takeover and death; dispatch 2: the run is dead
    assert world.run(job, "12:00").state is RunState.DEAD

    redrive(world, world.run(job, "12:00"))
    world.tick()
    world.worker("b").work()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_redriven_run_cancelled_by_an_older_message_keeps_its_dispatch(world: World) -> None:
    """The message is redelivered after the redrive, when the job is deleted."""
    job = die(world)
    redriven = redrive(world, world.run(job, "12:00"))
    world.delete(job)

    redeliver(world)
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.reason) == (RunState.CANCELLED, "its job was deleted")
    assert run.dispatch == redriven.dispatch
