"""Pausing and resuming jobs: which states allow it, and what is sent."""

from __future__ import annotations

import pytest

from nextfire.domain.due import FireEntry
from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.occurrences import JobState
from nextfire.domain.upcoming_runs import upcoming_runs
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import MINUTELY, NOON, RUN_ALL, SKIP, a_fire, at, job_key
from tests.world import World

BEGINNING = "11:59:30"

# The use case


def test_a_paused_job_has_no_next_occurrence(world: World) -> None:
    job = world.register()

    paused = world.pause(job, "maintenance")

    assert upcoming_runs(paused, world.now, 3) == []
    world.tick_at("13:00:30")
    assert (world.sent, world.entries) == ([], [])


def test_what_was_due_before_the_pause_is_still_sent(world: World) -> None:
    job = world.register(**MINUTELY)
    world.at("12:00:30")  # no tick since before 12:00
    world.pause(job)

    settle(world)

    assert ran(world, job) == ["12:00"]
    assert_all_accounted_for(world, job)


def test_a_run_continues_through_a_pause(world: World) -> None:
    job = world.register(retryPolicy={"initialDelayMs": 60_000})
    world.tick_at("12:00")
    world.script(exit_code=1, meanwhile=lambda: world.pause(job))
    world.worker().work_one()

    settle(world)

    assert world.run(job, "12:00").attempt == 2
    assert ran(world, job) == ["12:00"]


def test_pausing_twice_and_resuming_twice_is_doing_it_once(world: World) -> None:
    job = world.register()

    paused = world.pause(job, "first")
    world.advance(seconds=5)
    assert world.pause(job, "second") == paused
    world.advance(seconds=5)
    resumed = world.resume(job)
    assert world.resume(job) == resumed

    fires = [entry for entry in world.entries if isinstance(entry, FireEntry)]
    assert [e.at for e in fires if e.version == resumed.schedule_version] == [NOON]


def test_a_pause_that_meets_another_change_is_made_upon_it(world: World) -> None:
    job = world.register()
    world.faults.call_before_next("jobs.update", lambda: world.change(job, timeoutSec=9))

    paused = world.pause(job)

    assert (paused.revision, paused.definition.timeout_sec) == (3, 9)


def test_two_concurrent_pauses_are_one_pause(world: World) -> None:
    job = world.register()
    world.faults.call_before_next("jobs.update", lambda: world.pause(job, "the other"))

    paused = world.pause(job, "this one")

    assert (paused.revision, paused.pause_reason) == (2, "the other")


@pytest.mark.parametrize("act", ["pause", "resume"])
def test_a_finished_job_can_be_neither_paused_nor_resumed(world: World, act: str) -> None:
    job = world.register("done", type="ONCE", schedule="2026-05-24T12:00:00Z")
    gone = world.register("gone")
    world.delete(gone)
    world.tick_and_work("12:00")
    do = getattr(world, act)

    with pytest.raises(ConflictError, match="COMPLETED"):
        do(job)
    for key in (gone.key, job_key("never")):
        with pytest.raises(NotFoundError):
            getattr(world.manage, act)(key, *([None] if act == "pause" else []), now=world.now)


def test_a_change_of_the_schedule_while_paused_counts_from_the_change(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.tick_and_work("12:00")
    world.at("12:05:30")
    world.pause(job, "maintenance")
    world.at("12:20:30")

    changed = world.change(job, schedule="*/10 * * * *")

    assert (changed.state, changed.pause_reason) == (JobState.PAUSED, "maintenance")
    assert world.job(job.key).effective_from == at("12:20:30")
    world.at("12:55:30")
    world.resume(job)
    settle(world)
    assert covered(world, job) == ["12:01-12:05 (5)", "12:06-12:20 (15)", "12:30-12:50 (3)"]
    assert_all_accounted_for(world, job)


def test_a_change_of_anything_else_while_paused_changes_nothing_of_the_pause(world: World) -> None:
    job = world.register()
    paused = world.pause(job, "maintenance")

    changed = world.change(job, timeoutSec=9)

    assert (changed.state, changed.schedule_version) == (JobState.PAUSED, paused.schedule_version)
    assert changed.definition.timeout_sec == 9


def test_a_schedule_that_never_fires_is_refused_while_paused_too(world: World) -> None:
    job = world.register()
    paused = world.pause(job)

    with pytest.raises(InvalidInputError):
        world.change(job, type="ONCE", schedule="2020-01-01T00:00:00Z")

    assert world.job(job.key) == paused


def test_a_paused_job_is_deleted(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_ALL)
    world.tick_and_work("12:00")
    world.at("12:00:30")
    world.pause(job)
    world.at("12:10")

    assert world.delete(job).state is JobState.CANCELLED

    settle(world)
    with pytest.raises(NotFoundError):
        world.resume(job)
    assert ran(world, job) == ["12:00"], "occurrences during the pause are not owed"
    assert_all_accounted_for(world, job)


def test_a_job_with_nothing_left_is_completed_by_resuming(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    world.at("12:00:01")
    world.pause(job)
    world.worker().work()
    assert world.job(job.key).state is JobState.PAUSED

    assert world.resume(job).state is JobState.COMPLETED
    assert world.entries == []


@pytest.mark.parametrize("resumed_at", ["11:59:59.5", "12:00:30"])
def test_a_last_run_that_was_sent_before_its_pause_completes_the_resumed_job(
    world: World, resumed_at: str
) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("12:00")
    # The clock of the API is behind the watcher's.
    world.manage.pause(job.key, "maintenance", now=at("11:59:59"))
    world.worker().work()
    world.at("12:00:30")
    assert world.manage.resume(job.key, now=at(resumed_at)).state is JobState.ACTIVE

    settle(world)

    assert world.job(job.key).state is JobState.COMPLETED
    assert ran(world, job) == ["12:00"]
    assert_all_accounted_for(world, job)


def test_a_job_without_a_schedule_is_active_again(world: World) -> None:
    job = world.register(type="MANUAL", schedule=None)
    world.pause(job)

    assert world.resume(job).state is JobState.ACTIVE
    assert world.entries == []


def test_an_entry_of_the_time_before_a_pause_does_not_fire_after_it(world: World) -> None:
    job = world.register()
    (before,) = world.entries
    world.pause(job)
    world.resume(job)
    assert before in world.entries

    settle(world)
    world.tick_at("12:00")

    assert world.sent == ["report 12:00"]
    assert isinstance(before, FireEntry)
    assert before.version != world.job(job.key).schedule_version
    assert a_fire(job, NOON) == before


def test_resuming_that_is_not_stored_leaves_the_pause(world: World) -> None:
    job = world.register()
    paused = world.pause(job)
    world.due.refuses = lambda _: True

    with pytest.raises(Exception, match="Try again"):
        world.resume(job)

    assert world.job(job.key) == paused


@pytest.mark.parametrize("then", ["pause", "change"])
def test_the_policy_over_a_pause_outlives_the_change_that_follows(world: World, then: str) -> None:
    start = "2026-05-24T12:00:10Z"
    job = world.register(type="INTERVAL", schedule="PT5S", startAt=start, misfire=SKIP)
    world.tick_at("12:00:11")
    world.pause(job)
    world.at("12:00:41")
    world.resume(job)
    world.advance(seconds=0.3)
    world.pause(job) if then == "pause" else world.change(job, schedule="PT7S")

    for second in range(42, 45):
        world.tick_at(f"12:00:{second}")

    assert world.sent == ["report 12:00:10"]
