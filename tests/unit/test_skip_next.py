"""Skipping the next occurrence and undoing that; the run record decides."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.domain.errors import ChangedError, ConflictError, NotFoundError
from nextfire.domain.instants import MINUTE
from nextfire.domain.job import MAX_SKIPS, Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState, Trigger
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, at, job_key
from tests.unit.auditing import audit, delete_due_entries
from tests.world import World

BEGINNING = "11:58:30"


def skip(world: World, job: Job, reason: str | None = None, **more: Any) -> Job:
    return world.skips.skip_next(job.key, reason, **more)


def test_the_next_occurrence_does_not_run_and_the_one_after_does(world: World) -> None:
    job = world.register(**MINUTELY)

    skipping = skip(world, job, "the ledger is closed")
    world.tick_and_work("11:59", "12:00")

    assert skipping == world.job(job.key)
    assert (skipping.skips, skipping.revision) == ((at("11:59"),), job.revision + 1)
    assert skipping.schedule_version == job.schedule_version
    run = world.run(job, "11:59")
    assert (run.state, run.reason, run.trigger) == (
        RunState.SKIPPED,
        "the ledger is closed",
        Trigger.SCHEDULE,
    )
    assert ran(world, job) == ["12:00"]
    assert covered(world, job) == []
    assert_all_accounted_for(world, job)


def test_asked_twice_it_is_the_same_occurrence(world: World) -> None:
    job = world.register(**MINUTELY)
    once = skip(world, job)
    assert skip(world, job) == once
    assert world.job(job.key).next_to_run(world.now) == at("12:00")
    world.tick_and_work("11:59")
    assert skip(world, job).skips == (at("11:59"), at("12:00"))


def test_an_occurrence_that_jitter_delays_is_not_the_next_one(world: World) -> None:
    job = world.register(type="INTERVAL", schedule="PT1H", jitterSec=3_600)
    world.tick_at("12:58")
    assert skip(world, job).skips == (at("12:58:30"),)
    world.tick_at("12:58:31")
    assert job.due_at(at("12:58:30")) > world.now + 2 * MINUTE

    with pytest.raises(NotFoundError):
        world.skips.unskip(job.key)
    assert skip(world, job).skips[1:] == (at("13:58:30"),)


def test_an_undone_skip_runs(world: World) -> None:
    job = world.register()
    skip(world, job)

    undone = world.skips.unskip(job.key)
    world.tick_and_work("12:00")

    assert undone.skips == ()
    assert undone == world.job(job.key)
    assert ran(world, job) == ["12:00"]
    assert_all_accounted_for(world, job)
    with pytest.raises(NotFoundError):
        world.skips.unskip(job.key)


@pytest.mark.parametrize(("now", "late"), [("11:59:00", False), ("11:59:00.001", True)])
def test_an_undoing_comes_a_minute_before_or_not_at_all(world: World, now: str, late: bool) -> None:  # noqa: FBT001
    job = world.register()
    skip(world, job)
    world.at(now)
    if not late:
        assert world.skips.unskip(job.key).skips == ()
        return
    with pytest.raises(ConflictError, match="too late"):
        world.skips.unskip(job.key)
    world.tick_and_work("12:00")
    assert world.run(job, "12:00").state is RunState.SKIPPED


def test_a_skip_without_its_record_cannot_be_undone_and_says_so(world: World) -> None:
    """The record may have expired, or be missing in a restored table."""
    job = world.register()
    skipping = skip(world, job)
    world.runs.forget(world.run(job, "12:00").key)

    with pytest.raises(ConflictError, match="is not a requested skip"):
        world.skips.unskip(job.key)

    assert world.job(job.key) == skipping


def test_what_has_been_taken_is_not_skipped(world: World) -> None:
    """The watcher's clock is ahead: the occurrence ran, but for the caller it is in the future."""
    job = world.register(**MINUTELY)
    world.tick_and_work("11:59")
    world.at("11:58:59.9")

    with pytest.raises(ConflictError, match="already has a record"):
        skip(world, job)

    assert world.job(job.key).skips == ()
    assert world.run(job, "11:59").state is RunState.SUCCEEDED


def test_what_was_sent_and_not_taken_is_skipped(world: World) -> None:
    job = world.register(**MINUTELY)
    world.tick_at("11:59")
    world.at("11:58:59.9")
    skip(world, job)
    world.at("11:59")
    world.worker().work()
    assert world.run(job, "11:59").skip_requested
    assert not world.runner.calls
    settle(world)
    assert_all_accounted_for(world, job)


def test_jobs_without_an_occurrence_to_skip_are_rejected(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.skips.skip_next(job_key("missing"), None)
    paused = world.pause(world.register("paused"))
    manual = world.register("manual", type="MANUAL", schedule=None)
    for job in (paused, manual):
        with pytest.raises(ConflictError):
            skip(world, job)
    gone = world.delete(world.register("gone"))
    for ask in (skip, lambda world, job: world.skips.unskip(job.key)):
        with pytest.raises(NotFoundError):
            ask(world, gone)
    assert not world.runs.all


def test_only_a_job_that_is_as_expected_is_touched(world: World) -> None:
    job = world.register()
    with pytest.raises(ChangedError):
        skip(world, job, expected={"another"})
    skipping = skip(world, job, expected={job.version})
    with pytest.raises(ChangedError):
        world.skips.unskip(job.key, expected={job.version})
    world.skips.unskip(job.key, expected={skipping.version})


def test_a_change_that_comes_between_is_met_again(world: World) -> None:
    job = world.register()
    world.faults.call_before_next("runs.skip_next", lambda: world.change(job, timeoutSec=7))
    assert skip(world, job).definition.timeout_sec == 7
    world.faults.call_before_next("runs.unskip", lambda: world.change(job, timeoutSec=8))
    assert world.skips.unskip(job.key).definition.timeout_sec == 8
    assert not world.runs.all


def test_the_last_occurrence_is_skipped_and_the_job_is_completed(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    skip(world, job)
    world.tick_and_work("12:00")
    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)


def test_replace_does_not_end_a_run_for_one_that_is_skipped(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    world.tick_at("11:59")
    skip(world, job)

    def meanwhile() -> None:
        world.tick_at("12:00")
        world.advance(seconds=5)

    world.script(meanwhile=meanwhile)
    world.worker().work_one()
    world.worker().work()

    assert world.run(job, "11:59").state is RunState.SUCCEEDED
    assert world.run(job, "12:00").skip_requested


def test_replace_passes_over_no_run_for_one_that_is_skipped(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    world.tick_at("11:59")
    skip(world, job)
    world.tick_and_work("12:00")
    assert ran(world, job) == ["11:59"]
    settle(world)
    assert_all_accounted_for(world, job)


def test_replace_passes_over_no_run_for_two_that_are_skipped(world: World) -> None:
    job = world.register(overlap="REPLACE", **MINUTELY)
    world.tick_at("11:59")
    skip(world, job)
    world.tick_at("12:00")
    skip(world, job)
    world.tick_and_work("12:01")
    assert ran(world, job) == ["11:59"]
    settle(world)
    assert_all_accounted_for(world, job)


def test_overlap_skip_looks_past_it(world: World) -> None:
    job = world.register(overlap="SKIP", **MINUTELY)
    skip(world, job)
    world.tick_and_work("11:59", "12:00")
    assert ran(world, job) == ["12:00"]


@pytest.mark.parametrize("policy", [RUN_ALL, RUN_LATEST])
def test_a_range_goes_around_it(world: World, policy: dict[str, Any]) -> None:
    job = world.register(**MINUTELY, misfire=policy)
    world.tick_and_work("11:59")
    skip(world, job)
    world.at("12:05:30")
    settle(world)
    assert world.run(job, "12:00").skip_requested
    assert "12:00" not in ran(world, job)
    assert "12:05" in ran(world, job)
    assert_all_accounted_for(world, job)


def test_a_pause_leaves_it(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_ALL)
    skip(world, job)
    world.pause(job)
    world.at("12:01:30")
    world.resume(job)
    settle(world)
    assert world.run(job, "11:59").skip_requested
    assert ran(world, job)[:2] == ["12:00", "12:01"]
    assert_all_accounted_for(world, job)


def test_a_change_of_the_schedule_leaves_it_to_what_comes_then(world: World) -> None:
    job = world.register()
    skip(world, job)
    world.change(job, schedule="*/30 * * * *")
    world.tick_and_work("12:00", "12:30")
    assert ran(world, job) == ["12:30"]
    assert_all_accounted_for(world, job)


def test_a_skip_that_matches_no_occurrence_owes_nothing(world: World) -> None:
    job = world.register()
    skip(world, job)
    world.change(job, schedule="30 * * * *")
    world.tick_and_work("12:00", "12:30")
    assert ran(world, job) == ["12:30"]
    assert_all_accounted_for(world, job)


def test_the_auditor_does_not_mistake_a_future_skip_for_a_past_record(world: World) -> None:
    job = world.register(schedule="*/5 * * * *", misfire=RUN_LATEST)
    delete_due_entries(world)
    world.at("12:19:30")
    world.tick()
    skip(world, job)
    world.at("12:19:40")

    report = audit(world)
    settle(world)

    assert report.restored == 1
    assert ran(world, job) == ["12:15"]
    assert_all_accounted_for(world, job)


def test_a_job_remembers_the_latest_only(world: World) -> None:
    job = world.register(**MINUTELY)
    for minute in range(MAX_SKIPS + 2):
        world.clock.move_to(at(f"12:{minute:02}:30"))
        skip(world, job)
    assert len(world.job(job.key).skips) == MAX_SKIPS
    assert job.run_key(at("12:01")) in world.runs.all
