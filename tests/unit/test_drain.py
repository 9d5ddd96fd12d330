"""Draining: runs in progress and occurrences due before the request finish; then nothing runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextfire.domain.errors import ChangedError, ConflictError, NotFoundError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases import find_outstanding
from nextfire.usecases.find_outstanding import has_outstanding
from tests.accounting import assert_all_accounted_for, ran, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP, at
from tests.world import World

BEGINNING = "11:58:30"


def drain(world: World, job: Job, reason: str | None = None) -> Job:
    return world.manage.drain(job.key, reason, now=world.now)


def is_draining(world: World, job: Job) -> bool:
    return has_outstanding(world.runs, world.job(job.key), world.now)


def test_what_was_due_before_runs_and_nothing_later(world: World) -> None:
    job = world.register(**MINUTELY)
    world.tick_at("11:59")
    world.at("12:00")

    drained = drain(world, job, "a reason")

    assert (drained.state, drained.pause_reason) == (JobState.PAUSED, "a reason")
    assert drained.drain_asked_at == drained.effective_from == at("12:00")
    assert is_draining(world, job), "11:59 is queued, 12:00 is not sent yet"
    world.worker().work()
    assert is_draining(world, job), "12:00 is not sent"
    world.tick_at("12:01")
    assert is_draining(world, job), "12:00 is in the queue"
    world.worker().work()
    assert not is_draining(world, job)
    world.at("12:05")
    settle(world)
    assert ran(world, job) == ["11:59", "12:00"]
    assert_all_accounted_for(world, job)


def test_a_deleted_job_no_longer_drains(world: World) -> None:
    retries = {"maxAttempts": 2, "initialDelayMs": 7_200_000}
    job = world.register(**MINUTELY, retryPolicy=retries)
    world.tick_at("11:59")
    world.script(exit_code=1)
    world.worker().work()
    assert is_draining(world, drain(world, job))

    world.delete(job)

    assert world.job(job.key).drain_asked_at is not None
    assert not is_draining(world, job)


def test_after_resume_the_misfire_policy_applies_as_after_a_pause(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_LATEST)
    drain(world, job)
    world.at("12:01:30")
    resumed = world.resume(job)
    assert (resumed.state, resumed.drain_asked_at) == (JobState.ACTIVE, None)
    assert not is_draining(world, job)
    settle(world)
    assert ran(world, job) == ["12:01"]
    assert_all_accounted_for(world, job)


def test_it_drains_while_a_run_waits_for_its_retry(world: World) -> None:
    retries = {"maxAttempts": 2, "initialDelayMs": 7_200_000}
    job = world.register(**MINUTELY, retryPolicy=retries)
    world.tick_at("11:59")
    world.script(exit_code=1)
    world.worker().work()
    drain(world, job)
    world.at("13:30")
    assert is_draining(world, job)
    settle(world)
    assert world.run(job, "11:59").state is RunState.SUCCEEDED
    assert not is_draining(world, job)


def test_a_drain_waits_for_runs_requested_before_it_only(
    world: World,
) -> None:
    job = world.register()
    ask = world.request_runs.run_now
    ask(job.key, payload=None, reason=None, request="a", asked_at=world.now)
    world.advance(seconds=1)
    drain(world, job)
    assert is_draining(world, job)
    world.tick()
    world.worker().work()
    assert not is_draining(world, job)
    world.advance(seconds=1)
    ask(job.key, payload=None, reason=None, request="b", asked_at=world.now)
    assert not is_draining(world, job)


def test_a_run_that_a_watcher_sent_before_it_saw_the_drain_is_waited_for(world: World) -> None:
    job = world.register(**MINUTELY, retryPolicy={"maxAttempts": 2, "initialDelayMs": 7_200_000})
    world.tick_and_work("11:59")
    world.jobs.freeze()
    world.at("11:59:59.5")
    drain(world, job)
    assert not is_draining(world, job)

    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work()

    assert world.run(job, "12:00").state is RunState.PENDING
    assert is_draining(world, job)


def test_a_drain_does_not_wait_for_covered_occurrences(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.at("12:10:30")
    drain(world, job)
    assert is_draining(world, job)
    settle(world)
    assert ran(world, job) == ["12:10"]
    assert not is_draining(world, job)


def test_a_range_that_began_before_the_time_looked_at_reaches_into_it(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.advance(days=3)
    settle(world)
    drain(world, job)
    assert not is_draining(world, job)
    assert [r.covered for r in world.runs.all.values() if r.covered > 1] == [3 * 1440 - 1]


def test_one_that_is_redriven_continues(world: World) -> None:
    job = world.register(**MINUTELY, retryPolicy={"maxAttempts": 1})
    world.tick_at("11:59")
    world.script(exit_code=1)
    world.worker().work()
    drain(world, job)
    assert not is_draining(world, job)
    world.manage_runs.redrive(world.run(job, "11:59").key, None)
    assert is_draining(world, job)
    settle(world)
    assert not is_draining(world, job)


def test_one_that_is_paused_is_reported_and_stays_as_it_is(world: World) -> None:
    job = world.register(**MINUTELY)
    world.tick_at("11:59")
    paused = world.pause(job, "first")
    assert not is_draining(world, job), "a drain was not requested"
    world.advance(seconds=5)
    drained = drain(world, job, "second")
    assert drained == replace(
        paused,
        revision=paused.revision + 1,
        updated_at=world.now,
        drain_asked_at=world.now,
    )
    assert is_draining(world, job)
    world.advance(seconds=5)
    assert drain(world, job) == drained, "a repeated request changes nothing"
    assert world.pause(job) == drained


def test_a_pause_that_ends_by_itself_still_does(world: World) -> None:
    job = world.register(**MINUTELY)
    world.manage.pause(job.key, None, now=world.now, until=at("12:00:30"))
    drain(world, job)
    settle(world)
    world.tick_at("12:00:31")
    ended = world.job(job.key)
    assert (ended.state, ended.drain_asked_at) == (JobState.ACTIVE, None)


def test_a_change_of_the_schedule_leaves_what_was_due_before(world: World) -> None:
    job = world.register(**MINUTELY)
    world.tick_at("11:59")
    drain(world, job)
    world.at("12:00:30")
    changed = world.change(job, schedule="*/5 * * * *")
    assert changed.drain_asked_at == at("11:59")
    assert is_draining(world, job)
    settle(world)
    assert not is_draining(world, job)
    assert ran(world, job) == ["11:59"]


def test_only_the_latest_records_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_outstanding, "LOOKED_AT_MOST", 3)
    retries = {"maxAttempts": 2, "initialDelayMs": 7_200_000}
    job = world.register(**MINUTELY, misfire=RUN_ALL, retryPolicy=retries)
    world.tick_at("11:59")
    world.script(exit_code=1)
    world.worker().work()
    for time in ("12:00", "12:01", "12:02"):
        world.tick_and_work(time)
    drain(world, job)
    assert not is_draining(world, job)
    monkeypatch.setattr(find_outstanding, "LOOKED_AT_MOST", 4)
    assert is_draining(world, job)


def test_occurrences_without_a_record_are_ignored_after_two_weeks(world: World) -> None:
    job = world.register(**MINUTELY)
    world.at("12:00")
    drain(world, job)
    world.advance(days=13)
    assert is_draining(world, job)
    world.advance(days=2)
    assert not is_draining(world, job)


def test_a_completed_or_deleted_job_cannot_be_drained(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T11:59:00Z")
    world.tick_and_work("11:59")
    with pytest.raises(ConflictError, match="COMPLETED"):
        drain(world, job)
    world.delete(job)
    with pytest.raises(NotFoundError):
        drain(world, job)


def test_another_version_than_expected_is_left_alone(world: World) -> None:
    job = world.register()
    with pytest.raises(ChangedError):
        world.manage.drain(job.key, None, now=world.now, expected=["another"])
    assert world.job(job.key) == job


def test_a_recreated_job_ignores_runs_of_its_predecessor(world: World) -> None:
    retries = {"maxAttempts": 2, "initialDelayMs": 7_200_000}
    former = world.register(**MINUTELY, retryPolicy=retries)
    world.tick_at("11:59")
    world.script(exit_code=1)
    world.worker().work()
    world.delete(former)
    world.tick_at("12:00:30")
    job = world.register(**MINUTELY)
    drain(world, job)
    assert not is_draining(world, job)
