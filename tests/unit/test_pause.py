"""Pausing and resuming: which occurrences a version owns, and which states allow it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.due import FireEntry
from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import MINUTELY, NOON, RUN_ALL, SKIP, a_fire, a_job, at, job_key
from tests.world import World

BEGINNING = "11:59:30"


# Versions of a job


def test_a_pause_owns_no_occurrences_and_keeps_former_versions() -> None:
    job = a_job(since=at("11:30"))

    paused = job.paused(at("12:10:00.5"), "maintenance")

    assert (paused.state, paused.pause_reason) == (JobState.PAUSED, "maintenance")
    assert paused.schedule_version > job.schedule_version
    assert paused.effective_from == at("12:10:00.5")
    (past,) = paused.replaced
    assert (past.version, past.effective_from, past.until) == (
        job.schedule_version,
        at("11:30"),
        at("12:10:00.5"),
    )


def test_a_resumed_version_owns_what_was_due_since_the_pause() -> None:
    job = a_job(since=at("11:30")).paused(at("12:10"), "maintenance")

    resumed = job.resumed(at("15:10"))

    assert (resumed.state, resumed.pause_reason) == (JobState.ACTIVE, None)
    assert resumed.schedule_version > job.schedule_version
    assert (resumed.effective_from, resumed.resumed_at) == (at("12:10"), at("15:10"))
    assert resumed.replaced == job.replaced, "the pause itself owned no occurrences"
    assert resumed.first() == resumed.fire_entry(at("13:00"), 1)


@pytest.mark.parametrize("behind", [timedelta(seconds=1), timedelta(days=1)])
def test_a_writer_whose_clock_is_behind_moves_nothing_back(behind: timedelta) -> None:
    job = a_job(since=at("12:00"))

    paused = job.paused(at("12:00") - behind, None)
    resumed = paused.resumed(at("12:00") - behind)

    assert (paused.effective_from, resumed.effective_from, resumed.resumed_at) == (NOON,) * 3
    assert job.schedule_version < paused.schedule_version < resumed.schedule_version


def test_an_interval_keeps_its_phase() -> None:
    job = a_job(since=at("11:53"), type="INTERVAL", schedule="PT10M")
    assert job.next_after(at("12:00")) == at("12:03")

    for minute in (11, 29, 48):
        job = job.paused(at(f"12:{minute}"), None).resumed(at(f"12:{minute + 7}"))

    assert (job.effective_from, job.counted_from) == (at("12:48"), at("11:53"))
    assert job.next_after(at("13:00")) == at("13:03")


def test_a_pause_does_not_restart_a_delay() -> None:
    job = a_job(since=NOON, type="DELAY", schedule="PT30M")

    early = job.paused(at("12:10"), None).resumed(at("12:20"))
    late = job.paused(at("12:10"), None).resumed(at("12:50"))
    over = job.paused(at("12:40"), None).resumed(at("12:50"))

    assert early.first() == early.fire_entry(at("12:30"), 1)
    assert late.first() == late.fire_entry(at("12:30"), 1)
    assert over.first() is None


def test_a_change_restarts_the_count() -> None:
    job = a_job(since=at("11:53"), type="INTERVAL", schedule="PT10M", maxRuns=3)
    job = job.paused(at("12:11"), None).resumed(at("12:15"))

    changed = job.with_new_version(at("12:20"))

    assert (changed.counted_from, changed.effective_from) == (None, at("12:20"))
    assert changed.next_after(at("12:20")) == at("12:30")
    assert changed.replaced[-1].counted_from == at("11:53")
    was = changed.as_of(changed.replaced[-1])
    assert (was.schedule_version, was.next_after(at("12:12"))) == (
        job.schedule_version,
        at("12:13"),
    )


@pytest.mark.parametrize(
    ("paused_at", "first"),
    [
        ("11:59", (NOON, 1)),
        ("12:00", (at("13:00"), 2)),
        ("13:30", (at("14:00"), 3)),
        ("14:00", None),
    ],
)
def test_max_runs_counts_on_over_a_pause(paused_at: str, first: tuple[Any, int] | None) -> None:
    job = a_job(since=at("11:30"), maxRuns=3)

    resumed = job.paused(at(paused_at), None).resumed(at("18:00"))

    assert resumed.first() == (resumed.fire_entry(*first) if first else None)


def test_ordinals_are_those_of_the_whole_schedule() -> None:
    job = a_job(since=at("11:30"), maxRuns=4).paused(at("12:30"), None).resumed(at("12:40"))

    assert [job.ordinal(at(time)) for time in ("12:00", "13:00", "15:00", "20:00")] == [1, 2, 4, 5]
    assert [job.is_last(at(time)) for time in ("14:00", "15:00")] == [False, True]


SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "*/7 * * * *"},
    {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"},
    {"type": "INTERVAL", "schedule": "PT11M"},
    {"type": "INTERVAL", "schedule": "PT11M", "startAt": "2026-05-24T12:01:00Z"},
    {"type": "DELAY", "schedule": "PT3H"},
    {"schedule": "*/7 * * * *", "maxRuns": 9},
    {"type": "INTERVAL", "schedule": "PT50S", "maxRuns": 200, "jitterSec": 30},
]


@given(
    st.sampled_from(SCHEDULES),
    st.lists(st.integers(1, 7_200), min_size=1, max_size=8),
)
def test_pauses_move_no_occurrence(fields: dict[str, Any], seconds: list[int]) -> None:
    """The entries of all versions together equal those of a job that was never paused."""
    job = never = a_job(since=at("10:00"), **fields)
    now, owned = at("10:00"), []
    for number, each in enumerate(seconds):
        now += timedelta(seconds=each)
        if number % 2:
            job = job.resumed(now)
        else:
            owned += walked(job, now)
            job = job.paused(now, None)
    if job.state is JobState.PAUSED:
        job = job.resumed(now)
    until = now + timedelta(hours=1)

    assert owned + walked(job, until) == walked(never, until)


def walked(job: Job, until: Any) -> list[tuple[Any, int]]:
    """The occurrences of the chain that starts with *job*'s first entry, with their ordinals."""
    entry, found = job.first(), []
    while entry is not None and entry.occurs_at <= until:
        found.append((entry.occurs_at, entry.ordinal))
        entry = job.successor(entry)
    return found


# The use case


def test_a_paused_job_has_no_next_occurrence(world: World) -> None:
    job = world.register()

    paused = world.pause(job, "maintenance")

    assert paused.upcoming(world.now, 3) == []
    world.tick_at("13:00:30")
    assert (world.sent, world.entries) == ([], [])


def test_what_was_due_before_the_pause_is_still_sent(world: World) -> None:
    job = world.register(**MINUTELY)
    world.at("12:00:30")  # no tick since before 12:00
    world.pause(job)

    settle(world)

    assert ran(world, job) == ["12:00"]
    assert_all_accounted_for(world, job)


def test_a_run_goes_on_through_a_pause(world: World) -> None:
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
    world.tick_at("12:00")
    world.worker().work()
    do = getattr(world, act)

    with pytest.raises(ConflictError, match="COMPLETED"):
        do(job)
    for key in (gone.key, job_key("never")):
        with pytest.raises(NotFoundError):
            getattr(world.manage, act)(key, *([None] if act == "pause" else []), now=world.now)


def test_a_change_of_the_schedule_while_paused_counts_from_the_change(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.tick_at("12:00")
    world.worker().work()
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
    world.tick_at("12:00")
    world.worker().work()
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
