"""A new release of the time zone database moves occurrences whose entries are stored already."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.due import FireEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.domain.zones import ZoneReading
from tests.builders import at
from tests.unit.auditing import audit
from tests.world import World
from tests.zone_releases import EARLIER, LATER, MOVED, OLD, disagree

SUCCEEDED, SKIPPED = RunState.SUCCEEDED, RunState.SKIPPED
ALL: dict[str, Any] = {"timezone": MOVED, "misfire": {"policy": "RUN_ALL"}}
# 15:30 in the zone is at 12:00 at first, 12:30 with `LATER`, 11:30 with `EARLIER`.
ONCE: dict[str, Any] = ALL | {"type": "ONCE", "schedule": "2026-05-24T15:30"}
DAILY: dict[str, Any] = ALL | {"type": "CRON", "schedule": "30 15 * * *"}
_BOTH = ["2026-05-24T15:30", "2026-05-24T16:40"]
TWICE: dict[str, Any] = ALL | {"type": "DATES", "schedule": _BOTH}
INTERVAL: dict[str, Any] = ALL | {
    "type": "INTERVAL",
    "schedule": "PT24H",
    "startAt": "2026-05-24T15:30",
}


class Release:
    current = OLD

    def __call__(self) -> str:
        return self.current


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    release = Release()
    disagree(monkeypatch, release)
    return release


@pytest.fixture
def world(release: Release) -> World:  # noqa: ARG001 - comes first
    return started()


def started() -> World:
    world = World("11:20")
    world.tick()
    return world


def work(world: World, *times: str) -> None:
    for time in times:
        world.tick_at(time)
        world.advance_and_work(seconds=1)


def states(world: World, job: Job, *times: str) -> list[RunState | None]:
    runs = [world.runs.get(job.run_key(at(time))) for time in times]
    return [None if run is None else run.state for run in runs]


def fires(world: World) -> list[str]:
    return [f"{each.at:%d %H:%M}" for each in world.entries if isinstance(each, FireEntry)]


def reason(world: World, job: Job, time: str) -> str | None:
    run = world.runs.get(job.run_key(at(time)))
    return None if run is None else run.reason


@pytest.mark.parametrize("when", [ONCE, DAILY, TWICE, INTERVAL])
def test_a_time_that_comes_later_runs_only_then(
    world: World, release: Release, when: dict[str, Any]
) -> None:
    job = world.register(**when)
    release.current = LATER
    report = world.tick_at("12:00")
    assert fires(world) == ["24 12:30"]
    assert report.skipped == [world.run(job, "12:00")]
    assert states(world, job, "12:00", "12:30") == [SKIPPED, None]
    assert world.job(job.key).state is JobState.ACTIVE
    assert (reason(world, job, "12:00") or "").startswith("now at 2026-05-24T12:30:00Z, by the")

    work(world, "12:30")
    assert states(world, job, "12:00", "12:30") == [SKIPPED, SUCCEEDED]


@pytest.mark.parametrize("when", [ONCE, DAILY, TWICE, INTERVAL])
def test_a_time_that_would_have_come_earlier_runs_when_that_is_noticed(
    world: World, release: Release, when: dict[str, Any]
) -> None:
    job = world.register(**when)
    release.current = EARLIER
    work(world, "12:00")
    assert states(world, job, "11:30", "12:00") == [SUCCEEDED, SKIPPED]


def test_the_misfire_policy_decides_about_a_time_that_has_passed(
    world: World, release: Release
) -> None:
    job = world.register(**DAILY | {"misfire": {"policy": "SKIP"}})
    release.current = EARLIER
    work(world, "12:00")
    assert states(world, job, "11:30", "12:00") == [SKIPPED, SKIPPED]
    assert fires(world) == ["25 11:30"]
    assert "misfire policy SKIP" in (reason(world, job, "11:30") or "")


def test_the_times_after_it_follow_the_new_rules(world: World, release: Release) -> None:
    job = world.register(**TWICE)  # 12:00 and 13:10
    release.current = LATER
    work(world, "12:00", "12:30", "13:10", "13:40")
    assert world.sent == ["report 12:30", "report 13:40"]
    assert world.job(job.key).state is JobState.COMPLETED


@pytest.mark.parametrize(("first", "then"), [(OLD, LATER), (LATER, OLD)])
def test_a_time_that_is_an_occurrence_by_both_rules_stays(
    world: World, release: Release, first: str, then: str
) -> None:
    release.current = first
    job = world.register(**ALL | {"schedule": "*/30 0-23 * * *"})
    work(world, "11:30")
    release.current = then
    work(world, "12:00", "12:30")
    assert states(world, job, "11:30", "12:00", "12:30") == [SUCCEEDED] * 3


def test_entries_of_the_same_or_a_newer_release_are_taken_as_they_are(
    world: World, release: Release
) -> None:
    """Otherwise two watchers would move an entry to and fro during a deployment."""
    release.current = LATER
    job = world.register(**ONCE)
    release.current = OLD
    work(world, "12:00", "12:30")
    assert states(world, job, "12:00", "12:30") == [None, SUCCEEDED]


def test_a_time_that_ran_by_a_newer_release_does_not_run_again_by_the_old_one(
    world: World, release: Release
) -> None:
    release.current = EARLIER
    job = world.register(**DAILY)
    release.current = OLD
    work(world, "11:30", "12:00")
    assert states(world, job, "11:30", "12:00") == [SUCCEEDED, None]
    assert fires(world) == ["25 12:00"]


def test_a_time_that_is_earlier_by_the_old_release_is_not_passed_over(
    world: World, release: Release
) -> None:
    release.current = LATER
    job = world.register(**ALL | {"schedule": "30,50 15 * * *"})  # 12:30 and 12:50
    release.current = OLD
    work(world, "12:30", "12:50")  # by the old release 15:50 is at 12:20
    assert states(world, job, "12:20", "12:30", "12:50") == [SUCCEEDED, SUCCEEDED, None]


def test_a_time_before_the_job_was_created_runs_where_it_was(
    world: World, release: Release
) -> None:
    world.at("11:45")
    world.tick()
    job = world.register(**ONCE)
    release.current = EARLIER  # 11:30: before the job existed
    work(world, "12:00")
    assert states(world, job, "11:30", "12:00") == [None, SUCCEEDED]


def test_a_time_after_the_end_of_the_schedule_completes_the_job(
    world: World, release: Release
) -> None:
    job = world.register(**DAILY | {"endAt": "2026-05-24T12:10:00Z"})
    release.current = LATER
    work(world, "12:00")
    assert fires(world) == []
    assert states(world, job, "12:00") == [SKIPPED]
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_time_after_the_end_of_its_version_is_dropped(world: World, release: Release) -> None:
    job = world.register(**DAILY)
    world.at("12:10")  # no watcher runs: the old version owns 12:00
    world.change(job, schedule="0 6 * * *")
    release.current = LATER
    work(world, "12:10")
    assert states(world, job, "12:00", "12:30") == [SKIPPED, None]
    assert len(fires(world)) == 1


def test_an_occurrence_that_a_user_skipped_does_not_run_elsewhere(
    world: World, release: Release
) -> None:
    job = world.register(**DAILY)
    world.skips.skip_next(job.key, None)
    release.current = LATER
    work(world, "12:00", "12:30")
    assert world.sent == []
    assert fires(world) == ["25 12:30"]


def test_ordinals_are_kept(world: World, release: Release) -> None:
    job = world.register(**DAILY | {"maxRuns": 1})
    release.current = LATER
    work(world, "12:00", "12:30")
    assert states(world, job, "12:00", "12:30") == [SKIPPED, SUCCEEDED]
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_run_that_the_old_release_started_does_not_run_again(
    world: World, release: Release
) -> None:
    """Its watcher died after it sent the run: the entry is still stored."""
    job = world.register(**TWICE)
    world.at("12:00")
    world.faults.refuse("due.put")
    with suppress(UnavailableError):
        world.tick()
    world.worker().work()
    assert states(world, job, "12:00") == [SUCCEEDED]
    assert fires(world) == ["24 12:00"]
    world.faults.clear()

    release.current = LATER
    world.due.refuses = lambda entry: entry.at == at("13:40")  # the table is throttled
    world.tick_at("12:00:10")
    assert fires(world) == ["24 12:00"]
    world.due.refuses = lambda _: False
    work(world, "12:00:20", "12:30", "13:40")
    assert world.sent == ["report 12:00", "report 13:40"]


@pytest.mark.parametrize("when", [ONCE, DAILY, TWICE, INTERVAL])
def test_a_move_whose_answer_is_lost_is_repeated_without_harm(
    world: World, release: Release, when: dict[str, Any]
) -> None:
    job = world.register(**when)
    release.current = LATER
    world.faults.lose_answer("runs.request")

    world.tick_at("12:00")
    assert sorted(fires(world)) == ["24 12:00", "24 12:30"]
    report = world.tick_at("12:01")

    assert fires(world) == ["24 12:30"]
    assert not report.skipped  # counted once at most
    assert world.job(job.key).state is JobState.ACTIVE


def test_a_watcher_with_the_old_release_continues_after_one_that_died_while_moving(
    world: World, release: Release
) -> None:
    job = world.register(**TWICE)
    release.current = LATER
    world.faults.lose_answer("runs.request")
    world.tick_at("12:00")

    release.current = OLD
    work(world, "12:00:10")
    release.current = LATER
    work(world, "12:30", "13:40")

    assert states(world, job, "12:00", "12:30") == [SKIPPED, SUCCEEDED]
    assert world.sent == ["report 12:00", "report 12:30", "report 13:40"]


def test_an_entry_knows_how_it_was_computed(world: World, release: Release) -> None:
    world.register(**DAILY)
    [entry] = [each for each in world.entries if isinstance(each, FireEntry)]
    assert entry.reading == ZoneReading(OLD, timedelta(hours=3, minutes=30))
    assert not entry.reading.is_outdated
    release.current = LATER
    assert entry.reading.is_outdated


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"type": "DELAY", "schedule": "PT1H", "timezone": MOVED},
    ],
)
def test_entries_that_depend_on_no_rules_have_no_reading(
    world: World, fields: dict[str, Any]
) -> None:
    world.register(**fields)
    [entry] = [each for each in world.entries if isinstance(each, FireEntry)]
    assert entry.reading is None


def test_times_that_a_clock_change_skips_are_read_with_the_offset_before_it() -> None:
    change = at("12:00").replace(month=3, day=29, hour=1)  # 02:00 becomes 03:00 in Berlin
    assert ZoneReading.of(change, MOVED).offset == timedelta(hours=1)
    assert ZoneReading.of(change + timedelta(seconds=1), MOVED).offset == timedelta(hours=2)


def test_an_audit_repairs_nothing_in_the_day_after_a_new_release(
    world: World, release: Release
) -> None:
    """By the new rules the run of 11:30 looks lost, and so does the entry of tomorrow 11:30."""
    job = world.register(**DAILY)
    assert audit(world).jobs == 1
    work(world, "12:00")
    release.current = EARLIER
    world.advance(hours=2)
    world.tick()
    assert not audit(world).repaired

    world.advance(hours=21)  # the day is not over
    assert not audit(world).repaired
    assert states(world, job, "11:30", "12:00") == [None, SUCCEEDED]


def test_an_audit_stores_the_entry_of_a_time_that_comes_earlier(
    world: World, release: Release
) -> None:
    """So it runs on time, although the stored entry is half an hour later."""
    job = world.register(
        **ALL | {"type": "DATES", "schedule": ["2026-05-27T15:30", "2026-05-28T15:30"]}
    )
    audit(world)
    release.current = EARLIER
    assert not audit(world).repaired
    world.advance(hours=25)
    world.tick()
    assert audit(world).restored == 1
    assert fires(world) == ["27 11:30", "27 12:00"]

    for _ in range(5):
        world.advance_and_work(hours=12)
    assert [run.key.scheduled_at.hour for run in world.runs.all.values() if run.attempts] == [11]
    assert fires(world) == ["28 11:30"]
    assert world.job(job.key).state is JobState.ACTIVE
