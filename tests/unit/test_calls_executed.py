"""Calls at their executor: the same claim, retries, records and cancels as scripts."""

from __future__ import annotations

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases.handled import Disposition
from tests.builders import at
from tests.fakes import Killed, raise_killed
from tests.unit.calling import FAILED, IN_A_MINUTE, OK, UNAVAILABLE, Calls, dispatched, key, retries
from tests.world import World


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def world(calls: Calls) -> World:
    world = World("11:59")
    world.call_targets[TargetKind.HTTP] = calls
    return world


def test_a_call_is_recorded_as_an_attempt_is(world: World) -> None:
    job = dispatched(world)

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.reason, run.exit_code) == (RunState.SUCCEEDED, "200 OK", None)
    assert [(each.outcome, each.call) for each in run.attempts] == [
        (AttemptOutcome.SUCCEEDED, '{"status":200}')
    ]


def test_a_destination_that_is_not_available_uses_up_no_attempts(
    world: World, calls: Calls
) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1, "initialDelayMs": 10_000})
    calls.results = [UNAVAILABLE, UNAVAILABLE, OK]

    for time in ("12:00:10", "12:00:30", "12:05"):
        world.worker("a").work_one()
        world.tick_at(time)

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    assert [each.outcome for each in run.attempts] == [
        AttemptOutcome.DEFERRED,
        AttemptOutcome.DEFERRED,
        AttemptOutcome.SUCCEEDED,
    ]
    assert [each.number for each in run.attempts] == [1, 1, 1]


def test_a_deferred_run_whose_window_would_pass_is_skipped(world: World, calls: Calls) -> None:
    job = dispatched(world, misfire={"relevancyWindowSec": 5})
    calls.results = [UNAVAILABLE]

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.SKIPPED, 0)
    assert run.reason == "503 Service Unavailable; not repeated: past relevancyWindowSec 5 s"
    assert world.dead_letters.letters == []
    assert retries(world) == []


def test_a_deferred_run_that_is_picked_up_after_its_window_is_skipped(
    world: World, calls: Calls
) -> None:
    job = dispatched(world, **IN_A_MINUTE)
    calls.results = [UNAVAILABLE, OK]
    world.worker("a").work_one()
    world.tick_at("12:00:30")  # in time, but the workers are busy
    world.clock.advance(seconds=31)

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.SKIPPED, 0)
    assert "late; not repeated: past relevancyWindowSec 60 s" in str(run.reason)
    assert len(calls.made) == 1
    assert world.dead_letters.letters == []


def test_a_run_that_failed_before_is_repeated_after_its_window(world: World, calls: Calls) -> None:
    job = dispatched(world, **IN_A_MINUTE)
    calls.results = [FAILED, OK]
    world.worker("a").work_one()
    world.tick_at("12:00:30")
    world.clock.advance(seconds=31)

    world.worker("a").work_one()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_run_that_must_wait_is_not_claimed(world: World, calls: Calls) -> None:
    job = dispatched(world)
    calls.hold = Hold(at("12:01:30"), "api.example.com:443 is down")

    handled = world.worker("a").work_one()

    assert handled.disposition is Disposition.ACKNOWLEDGE
    assert "is down" in handled.reason
    assert world.runs.get(key(job)) is None
    [entry] = retries(world)
    assert (entry.at, entry.dispatch) == (at("12:01:30"), 2)

    calls.hold = None
    world.tick_at("12:01:30")
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.dispatch) == (RunState.SUCCEEDED, 1, 2)


def test_what_a_run_took_is_released_once(world: World, calls: Calls) -> None:
    job = dispatched(world)
    calls.hold = Hold(at("12:01:30"), "down")
    world.worker("a").work_one()
    assert calls.released == [], "it took nothing"

    calls.hold = None
    world.tick_at("12:01:30")
    world.worker("a").work_one()

    assert calls.released == [key(job)]
    assert calls.first == [True, False]


def test_a_run_that_is_not_claimed_releases_what_it_took(world: World, calls: Calls) -> None:
    job = dispatched(world)
    world.faults.refuse("runs.claim")

    with pytest.raises(UnavailableError):
        world.worker("a").work_one()

    assert calls.released == [key(job)]
    assert calls.made == []


def test_a_waiting_run_that_is_past_its_window_is_skipped(world: World, calls: Calls) -> None:
    job = dispatched(world, misfire={"relevancyWindowSec": 60})
    calls.hold = Hold(at("12:01:30"), "down")
    world.worker("a").work_one()

    world.tick_at("12:01:30")
    world.worker("a").work_one()

    assert calls.made == []
    run = world.run(job, "12:00")
    assert run.state is RunState.SKIPPED
    assert "relevancyWindowSec is 60" in (run.reason or "")


def lose_the_worker_of_the_second_attempt(world: World, calls: Calls) -> Job:
    """The first attempt fails, and the executor of the second one is killed."""
    job = dispatched(world, retryPolicy={"maxAttempts": 3, "initialDelayMs": 10_000})
    calls.results = [Result(AttemptOutcome.FAILED, "500", call='{"status":500}'), OK]
    world.worker("a").work_one()
    world.tick_at("12:00:10")

    calls.meanwhile = raise_killed
    with pytest.raises(Killed):
        world.worker("a").work_one()
    calls.meanwhile = lambda: None
    return job


def test_a_lost_run_is_not_taken_over_while_its_destination_is_not_available(
    world: World, calls: Calls
) -> None:
    job = lose_the_worker_of_the_second_attempt(world, calls)
    calls.hold = Hold(at("12:30"), "the endpoint is paused")
    world.clock.move_to(at("12:10"))

    handled = world.worker("b").work_one()

    assert (handled.disposition, handled.lost) == (Disposition.ACKNOWLEDGE, True)
    run = world.run(job, "12:00")
    assert (len(calls.made), run.state, run.not_before) == (2, RunState.PENDING, at("12:30"))
    assert run.attempts[-1].outcome is AttemptOutcome.WORKER_LOST
    assert "the endpoint is paused" in (run.attempts[-1].reason or "")

    calls.hold = None
    world.tick_at("12:30")
    world.worker("b").work_one()
    assert (len(calls.made), world.run(job, "12:00").state) == (3, RunState.SUCCEEDED)


def test_a_run_that_becomes_free_is_not_claimed_while_its_destination_is_not_available(
    world: World, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lose_the_worker_of_the_second_attempt(world, calls)
    running = world.run(job, "12:00")
    handed_back = running.handed_back(Result(AttemptOutcome.HANDED_BACK, "stops"), at("12:00:20"))
    calls.hold = Hold(at("12:30"), "the endpoint is paused")
    world.clock.move_to(at("12:10"))
    records = iter([running, running, handed_back])
    monkeypatch.setattr(world.runs, "get", lambda _: next(records))

    with pytest.raises(UnavailableError, match="became free"):
        world.worker("b").work_one()

    assert len(calls.made) == 2


def test_a_run_that_waits_can_be_cancelled(world: World, calls: Calls) -> None:
    job = dispatched(world)
    calls.hold = Hold(at("12:01:30"), "down")
    world.worker("a").work_one()
    world.manage_runs.cancel(key(job), None)

    world.tick_at("12:01:30")
    world.worker("a").work_one()

    assert calls.made == []
    assert world.run(job, "12:00").state is RunState.CANCELLED


def test_a_hold_that_cannot_be_stored_leaves_the_message(world: World, calls: Calls) -> None:
    job = dispatched(world)
    calls.hold = Hold(at("12:01:30"), "down")
    world.faults.refuse("due.put")

    with pytest.raises(UnavailableError):
        world.worker("a").work_one()

    assert world.runs.get(key(job)) is None
    assert world.queued != []


def test_a_cancel_during_a_deferral_wins(world: World, calls: Calls) -> None:
    job = dispatched(world)
    calls.results = [UNAVAILABLE]
    calls.meanwhile = lambda: world.manage_runs.cancel(key(job), None)

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempts[0].outcome) == (RunState.CANCELLED, AttemptOutcome.DEFERRED)
    assert run.attempt == 0


def test_retry_after_is_honoured_in_the_record(world: World, calls: Calls) -> None:
    job = dispatched(world)
    calls.results = [Result(AttemptOutcome.FAILED, "429", unavailable=True, retry_at=at("12:07"))]

    world.worker("a").work_one()

    assert world.run(job, "12:00").not_before == at("12:07")
    assert [entry.at for entry in retries(world)] == [at("12:07")]


def test_a_target_can_pause_its_job(world: World, calls: Calls) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    calls.results = [Result(AttemptOutcome.FAILED, "410 Gone", pause="410 Gone")]

    world.worker("a").work_one()

    stored = world.job(job.key)
    assert (stored.state, stored.pause_reason) == (JobState.PAUSED, "410 Gone")
    assert world.run(job, "12:00").state is RunState.DEAD


def test_a_pool_that_does_not_run_the_kind_says_so(world: World) -> None:
    del world.call_targets[TargetKind.HTTP]
    job = dispatched(world)

    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.DEAD, 1)
    assert "runs scripts, not HTTP callbacks" in (run.reason or "")
