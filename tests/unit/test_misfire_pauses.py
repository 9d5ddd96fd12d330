"""Occurrences that were due in a pause, and pauses within an outage."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from tests.accounting import assert_all_accounted_for, covered, ran, ranges, records, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP
from tests.unit.misfires import (
    BOUNDED,
    ENDING,
    HOURLY,
    JITTERED,
    POLICIES,
    POLICY_NAMES,
    TEN_SECONDS,
    outage,
)
from tests.world import World

BEGINNING = "11:59:30"

# Pauses


def a_week_s_pause(world: World, job: Job) -> None:
    world.at("12:00:30")
    world.tick()
    world.worker().work()
    world.pause(job, "maintenance")
    assert world.job(job.key).state is JobState.PAUSED
    world.advance(days=7, seconds=5)
    settle(world)
    assert len(records(world, job)) <= 10, "nothing is due during a pause"
    world.resume(job)


@POLICIES
@pytest.mark.parametrize(
    "fields",
    [HOURLY, MINUTELY, TEN_SECONDS, JITTERED, BOUNDED, ENDING],
    ids=["hourly", "each minute", "each 10 s", "jitter", "maxRuns", "endAt"],
)
def test_a_pause_of_a_week(world: World, fields: dict[str, Any], misfire: dict[str, Any]) -> None:
    if misfire == RUN_ALL and fields in (MINUTELY, TEN_SECONDS, JITTERED):
        fields = fields | {"endAt": "2026-05-24T12:20:00Z"}
    job = world.register(**fields, misfire=misfire)
    a_week_s_pause(world, job)

    most = settle(world)

    assert most <= 2
    assert_all_accounted_for(world, job)
    if misfire != RUN_ALL:
        assert len(records(world, job)) <= 20
    if misfire == SKIP:
        assert any("due during a pause" in str(r.reason) for r in ranges(world, job))


@pytest.mark.parametrize(
    ("misfire", "runs", "covers"),
    [
        (RUN_ALL, ["12:01", "12:02", "12:03", "12:04"], []),
        (RUN_LATEST, ["12:04"], ["12:01-12:03 (3)"]),
        (SKIP, [], ["12:01-12:04 (4)"]),
    ],
    ids=POLICY_NAMES,
)
def test_what_was_due_in_a_pause_is_decided_when_it_ends(
    world: World, misfire: dict[str, Any], runs: list[str], covers: list[str]
) -> None:
    job = world.register(**MINUTELY, misfire=misfire)
    world.tick_at("12:00:10")
    world.pause(job)
    world.tick_at("12:02")
    world.at("12:04:20")  # without the pause, 12:04 would not be late
    world.resume(job)

    settle(world)

    assert ran(world, job) == ["12:00", *runs]
    assert covered(world, job) == covers
    assert_all_accounted_for(world, job)


def test_an_occurrence_at_the_instant_of_the_pause_is_not_in_it(world: World) -> None:
    job = world.register(misfire=SKIP)
    world.at("12:00")
    world.pause(job)
    settle(world)
    assert ran(world, job) == ["12:00"]

    world.at("13:00")
    world.resume(job)
    settle(world)
    assert covered(world, job) == ["13:00-13:00 (1)"], "the instant of resume belongs to the pause"
    assert_all_accounted_for(world, job)


def test_a_pause_within_an_outage(world: World) -> None:
    """Occurrences before the pause belong to the former version, so there are two ranges."""
    job = world.register(**MINUTELY, misfire=SKIP)
    world.at("12:10:30")
    world.pause(job)
    world.at("12:20:30")
    world.resume(job)
    outage(world, until="12:30:30")

    settle(world)

    assert covered(world, job) == ["12:00-12:10 (11)", "12:11-12:29 (19)"]
    assert_all_accounted_for(world, job)


@POLICIES
def test_pauses_in_a_row(world: World, misfire: dict[str, Any]) -> None:
    job = world.register(**MINUTELY, misfire=misfire)
    for minute in range(0, 60, 10):
        world.at(f"12:{minute:02d}:30")
        world.pause(job)
        world.at(f"12:{minute + 5:02d}:30")
        world.resume(job)
        if minute % 20:
            settle(world)

    settle(world)

    assert_all_accounted_for(world, job)


def test_the_last_occurrence_in_a_pause_completes_the_job(world: World) -> None:
    job = world.register(type="ONCE", schedule="2026-05-24T12:30:00Z", misfire=SKIP)
    world.pause(job)
    world.at("13:00")
    assert world.resume(job).state is JobState.ACTIVE

    settle(world)

    assert world.job(job.key).state is JobState.COMPLETED
    assert covered(world, job) == ["12:30-12:30 (1)"]


@pytest.mark.parametrize("misfire", [RUN_LATEST, RUN_ALL])
def test_what_was_due_in_a_pause_is_not_taken_for_a_late_watcher(
    world: World, misfire: dict[str, Any]
) -> None:
    """The alarm `watcher-late` does not count runs that were held back."""
    job = world.register(**MINUTELY, misfire=misfire)
    world.at("12:00:30")
    world.tick()
    world.pause(job)
    world.at("12:40:30")
    world.resume(job)

    sent = []
    for _ in range(60):
        sent += world.tick().dispatched
        world.advance(seconds=1)
    assert sent
    assert all(run.held_back for run in sent if run.lateness > timedelta(seconds=4))
    assert [run.held_back for run in world.tick_at("12:42").dispatched] == [False]
