"""Manual runs: once per request, in addition to the schedule."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from nextfire.domain.due import DispatchEntry, FireEntry
from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState, Trigger
from nextfire.domain.upcoming_runs import upcoming_runs
from tests.accounting import assert_all_accounted_for, settle
from tests.builders import MINUTELY, at, job_key
from tests.fakes import Killed
from tests.unit.requested import MANUAL, run_now, stored
from tests.world import World

BEGINNING = "11:58:30"

ONCE: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


def test_a_manual_run_starts_at_once_and_is_marked(world: World) -> None:
    job = world.register()

    asked = run_now(world, job, reason="the report was wrong")
    world.tick()
    world.worker().work()

    run = stored(world, asked)
    assert (asked.state, asked.dispatch) == (RunState.PENDING, 1)
    assert (run.state, run.trigger, run.attempt) == (RunState.SUCCEEDED, Trigger.MANUAL, 1)
    assert run.request_reason == "the report was wrong"
    assert run.dispatch_reason == "run on request"
    assert_all_accounted_for(world, job)


def test_record_and_entry_are_there_together_or_not_at_all(world: World) -> None:
    job = world.register(**MANUAL)
    world.due.refuses = lambda _: True

    world.faults.refuse("runs.request")
    with pytest.raises(UnavailableError):
        run_now(world, job)
    assert not world.runs.all

    world.due.refuses = lambda _: False
    run = run_now(world, job)
    (entry,) = world.entries
    assert isinstance(entry, DispatchEntry)
    assert (entry.run_id, entry.dispatch) == (run.key.run_id, 1)


def test_a_payload_takes_the_place_of_the_job_s_in_every_attempt(world: World) -> None:
    job = world.register(payload={"a": 1}, retryPolicy={"maxAttempts": 2, "initialDelayMs": 1000})
    world.script(exit_code=1)

    run_now(world, job, payload='{"a": 2}')
    settle(world)

    assert [call.payload for call in world.runner.calls[:2]] == ['{"a": 2}'] * 2
    world.tick_and_work("13:00")
    assert world.runner.calls[-1].payload == '{"a": 1}'


def test_a_payload_that_is_too_large_is_refused(world: World) -> None:
    job = world.register()
    with pytest.raises(InvalidInputError, match="payload"):
        run_now(world, job, payload='"' + 65_535 * "x" + '"')
    assert run_now(world, job, payload='"' + 65_534 * "x" + '"').payload is not None


def test_the_same_request_makes_one_run_whatever_became_of_the_job(world: World) -> None:
    job = world.register()
    first, asked_at = run_now(world, job), world.now

    world.advance(seconds=5)
    world.change(job, **MINUTELY)
    again = run_now(world, job, asked_at=asked_at)
    world.delete(job)
    once_more = run_now(world, job, asked_at=asked_at)

    assert first.key == again.key == once_more.key
    assert len(world.runs.all) == 1


def test_different_requests_of_one_instant_make_different_runs(world: World) -> None:
    job = world.register()
    runs = [run_now(world, job, request) for request in "abc"]
    assert len({run.key for run in runs}) == 3
    again = [run_now(world, job, request) for request in "abc"]
    assert [run.key for run in again] == [run.key for run in runs]


def test_a_request_whose_answer_was_lost_finds_its_run(world: World) -> None:
    job = world.register()
    world.faults.lose_answer("runs.request")
    with pytest.raises(UnavailableError):
        run_now(world, job)
    run_now(world, job)
    assert len(world.runs.all) == 1


def test_a_caller_who_dies_anywhere_and_asks_again_has_one_run() -> None:
    for calls in range(4):
        world = World("11:58:30")
        job = world.register()
        world.faults.kill_after(calls)
        with suppress(Killed):
            run_now(world, job)
        world.faults.clear()
        run_now(world, job, asked_at=at("11:58:30"))
        assert len(world.runs.all) == 1, calls
        settle(world)
        assert [run.state for run in world.runs.all.values()] == [RunState.SUCCEEDED]


@pytest.mark.parametrize(
    "asked_at", [at("12:00"), at("12:00:07"), at("12:00:07.001"), at("12:00:07.250")]
)
@pytest.mark.parametrize(
    "when",
    [
        MINUTELY,
        {"type": "INTERVAL", "schedule": "PT1S"},
        {"type": "DATES", "schedule": ["2026-05-24T12:00:07.250Z", "2026-05-24T12:00:07.251Z"]},
        ONCE,
        MANUAL,
    ],
)
def test_it_is_never_an_occurrence(when: dict[str, Any], asked_at: datetime) -> None:
    world = World("11:58:30.250")
    job = world.register(**when)
    world.clock.move_to(asked_at)

    at_ = run_now(world, job).key.scheduled_at

    assert at_.microsecond
    assert all(found.occurrence.at != at_ for found in upcoming_runs(job, at("11:58:30"), 100))
    assert 0 <= (at_ - asked_at).total_seconds() < 0.005


@pytest.mark.parametrize("state", ["manual", "paused", "completed"])
def test_a_job_without_an_occurrence_to_come_runs_on_request(world: World, state: str) -> None:
    job = world.register(**{"manual": MANUAL, "paused": MINUTELY, "completed": ONCE}[state])
    if state == "paused":
        world.pause(job)
    if state == "completed":
        world.tick_and_work("12:00")
        assert world.job(job.key).state is JobState.COMPLETED
    before = world.job(job.key)

    run = run_now(world, job)
    settle(world)

    assert stored(world, run).state is RunState.SUCCEEDED
    assert world.job(job.key) == before


def test_jobs_that_cannot_run_now_are_rejected(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.request_runs.run_now(
            job_key("missing"), payload=None, reason=None, request="r", asked_at=world.now
        )
    gone = world.register("gone")
    world.delete(gone)
    with pytest.raises(ConflictError, match="CANCELLED"):
        run_now(world, gone)
    assert not world.runs.all


def test_a_run_of_a_job_that_is_deleted_before_it_starts_is_cancelled(world: World) -> None:
    job = world.register()
    run = run_now(world, job)
    world.delete(job)
    settle(world)
    assert stored(world, run).state is RunState.CANCELLED


def test_it_completes_no_one_off_whose_run_is_still_to_come(world: World) -> None:
    job = world.register(**ONCE)
    world.at("12:00:00.5")  # 12:00 is due, and no tick has happened

    run = run_now(world, job)
    (slot,) = [s for s, e in world.due.items.items() if isinstance(e, FireEntry)]
    kept = world.due.items.pop(slot)
    world.tick()
    world.worker().work()
    assert stored(world, run).state is RunState.SUCCEEDED
    assert world.job(job.key).state is JobState.ACTIVE

    world.due.items[slot] = kept
    settle(world)
    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)


def test_max_runs_does_not_count_it(world: World) -> None:
    job = world.register(**MINUTELY, maxRuns=2)
    for number in range(3):
        run_now(world, job, str(number))
    world.tick()
    for minute in ("11:59", "12:00", "12:01"):
        world.tick_and_work(minute)
    runs = [run for run in world.runs.all.values() if run.trigger is Trigger.SCHEDULE]
    assert len(runs) == 2
    assert_all_accounted_for(world, job)
