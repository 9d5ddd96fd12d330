"""Pauses with an end: a watcher resumes the job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.due import BrokenEntry, ResumeEntry, Slot, bucket_name
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.schedule import MAX_DELAY
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP, at
from tests.unit.auditing import audit, delete_due_entries
from tests.world import World

BEGINNING = "11:58:30"


def pause(world: World, job: Job, until: str = "12:01:30", reason: str | None = None) -> Job:
    return world.manage.pause(job.key, reason, now=world.now, until=at(until))


def resumes(world: World) -> list[str]:
    return [f"{e.at:%H:%M:%S}" for e in world.entries if isinstance(e, ResumeEntry)]


def test_it_is_resumed_as_of_its_end_and_policy_decides_over_the_pause(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_LATEST)

    paused = pause(world, job)
    world.tick_at("12:01:29")
    assert world.job(job.key) == paused
    assert "resumed acme/report" in world.tick_at("12:01:30").notes
    assert resumes(world) == []
    settle(world)

    resumed = world.job(job.key)
    assert (resumed.state, resumed.resumed_at, resumed.resumes_at) == (
        JobState.ACTIVE,
        at("12:01:30"),
        None,
    )
    assert resumed.revision == paused.revision + 1
    assert covered(world, job) == ["11:59-12:00 (2)"]
    assert ran(world, job) == ["12:01"]
    world.tick_at("12:02")
    settle(world)
    assert ran(world, job) == ["12:01", "12:02"]
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize(("misfire", "runs"), [(RUN_LATEST, ["12:01"]), (SKIP, [])])
def test_an_occurrence_at_the_end_was_due_in_the_pause(
    world: World, misfire: dict[str, Any], runs: list[str]
) -> None:
    job = world.register(**MINUTELY, misfire=misfire)
    pause(world, job, until="12:01")

    world.tick_at("12:01")
    settle(world)

    assert ran(world, job) == runs
    assert_all_accounted_for(world, job)


def test_one_that_cannot_be_resumed_now_is_not_tried_without_end(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    world.at("12:01:30")
    world.faults.refuse("jobs.update", times=1)

    assert "waits" in "".join(world.tick().notes)
    assert world.job(job.key).state is JobState.PAUSED
    settle(world)
    assert world.job(job.key).state is JobState.ACTIVE


def test_a_watcher_that_is_late_resumes_as_of_then(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_ALL)
    pause(world, job)
    world.at("12:10:30")
    settle(world)
    assert world.job(job.key).resumed_at == at("12:01:30")
    assert_all_accounted_for(world, job)


def test_resumed_by_hand_it_stays_so(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    resumed = world.resume(job)
    world.tick_at("12:01:31")
    assert world.job(job.key) == resumed
    assert resumes(world) == []


@pytest.mark.parametrize("until", ["12:00:30", "12:05:30"])
def test_the_end_of_a_pause_can_be_moved(world: World, until: str) -> None:
    job = world.register(**MINUTELY, misfire=RUN_LATEST)
    first = pause(world, job, reason="a reason")
    paused = pause(world, job, until, reason="another")
    assert (paused.schedule_version, paused.pause_reason) == (first.schedule_version, "a reason")
    assert pause(world, job, until) == paused
    assert world.pause(job) == paused
    world.at("12:03:30")
    settle(world)
    assert (world.job(job.key).state is JobState.ACTIVE) == (until == "12:00:30")
    world.at("12:06:30")
    settle(world)
    assert world.job(job.key).resumed_at == at(until)
    assert_all_accounted_for(world, job)


def test_a_change_of_the_schedule_in_the_pause_leaves_its_end(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    world.change(job, schedule="*/2 * * * *")
    world.at("12:02:30")
    settle(world)
    assert world.job(job.key).state is JobState.ACTIVE
    assert "12:02" in ran(world, job)
    assert_all_accounted_for(world, job)


def test_paused_again_it_has_another_end(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    world.resume(job)
    world.pause(job)
    world.tick_at("12:01:31")
    assert world.job(job.key).state is JobState.PAUSED
    assert resumes(world) == []


def test_a_deleted_or_recreated_job_is_not_resumed(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    world.delete(job)
    recreated = world.pause(world.register(**MINUTELY))
    world.tick_at("12:01:31")
    assert world.job(job.key) == recreated
    assert resumes(world) == []


def test_a_job_that_is_deleted_in_its_pause_does_not_come_back_with_its_end(world: World) -> None:
    deleted = world.delete(pause(world, world.register(**MINUTELY)))
    world.tick_at("12:01:31")
    assert world.job(deleted.key) == deleted
    assert resumes(world) == []


def test_one_without_an_occurrence_left_is_completed(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T11:59:00Z")
    world.tick_at("11:59")
    pause(world, job)
    world.worker().work()
    world.tick_at("12:01:31")
    assert world.job(job.key).state is JobState.COMPLETED
    settle(world)
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("after", [timedelta(), -timedelta(seconds=1), MAX_DELAY * 2])
def test_the_end_of_a_pause_must_be_in_the_future(world: World, after: timedelta) -> None:
    job = world.register(**MINUTELY)
    with pytest.raises(InvalidInputError, match="until"):
        world.manage.pause(job.key, None, now=world.now, until=world.now + after)
    assert world.job(job.key) == job


def test_a_watcher_that_dies_anywhere_resumes_once() -> None:
    for calls in range(200):
        world = World("11:58:30")
        job = world.register(**MINUTELY, misfire=RUN_LATEST)
        pause(world, job)
        world.at("12:01:30")
        if not world.dies(calls, world.tick):
            assert calls > 5
            return
        world.new_watcher()
        settle(world)
        assert world.job(job.key).revision == 3, calls
        assert_all_accounted_for(world, job)
    raise AssertionError("the watcher was killed in every attempt")


@pytest.mark.parametrize("fault", ["refuse", "lose_answer"])
def test_a_store_that_does_not_answer_is_asked_again(world: World, fault: str) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    getattr(world.faults, fault)("jobs.update")
    world.at("12:01:30")
    settle(world)
    assert world.job(job.key).revision == 3
    assert_all_accounted_for(world, job)


def test_a_job_that_is_changed_while_it_is_resumed_is_resumed_after_that(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    world.faults.call_before_next("jobs.update", lambda: world.change(job, priority="HIGH"))
    world.at("12:01:30")
    settle(world)
    assert world.job(job.key).state is JobState.ACTIVE
    assert world.job(job.key).definition.priority == "HIGH"
    assert_all_accounted_for(world, job)


def test_record_and_entry_are_stored_together(world: World) -> None:
    job = world.register(**MINUTELY)
    world.due.refuses = lambda entry: isinstance(entry, ResumeEntry)
    with pytest.raises(UnavailableError):
        pause(world, job)
    assert world.job(job.key) == job


def test_the_auditor_restores_a_lost_end(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job, "13:00:00")
    assert audit(world).repaired == 0
    delete_due_entries(world, ResumeEntry)
    world.at("12:30:30")
    world.tick()

    assert audit(world).restored == 1
    assert resumes(world) == ["13:00:00"]
    assert audit(world).repaired == 0


def test_the_auditor_resumes_what_should_have_been(world: World) -> None:
    job = world.register(**MINUTELY)
    pause(world, job)
    delete_due_entries(world, ResumeEntry)
    world.at("12:30:30")
    world.tick()
    assert audit(world).restored == 1
    settle(world)
    assert world.job(job.key).resumed_at == at("12:01:30")
    assert_all_accounted_for(world, job)


def test_an_unknown_kind_of_entry_is_left_to_newer_watchers(world: World) -> None:
    slot = Slot(bucket_name(floor_minute(world.now), 0), "1779623910000#uid00001#X#1")
    world.due.items[slot] = {"kind": "EXTRA"}
    real = world.due.read

    def read(*args: Any, **kwargs: Any) -> Any:
        for each in real(*args, **kwargs):
            if isinstance(each, BrokenEntry):
                yield BrokenEntry(each.slot, each.raw, each.error, each.at, each.job, foreign=True)
            else:
                yield each

    world.due.read = read  # type: ignore[method-assign]
    world.tick()
    world.advance(minutes=5)
    world.tick()
    assert (world.due.quarantined, slot in world.due.items) == ([], True)
    world.advance(minutes=6)
    world.tick()
    assert len(world.due.quarantined) == 1
