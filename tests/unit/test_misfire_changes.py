"""Jobs that change, are deleted or are completed while their occurrences are missed."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.domain.errors import ConflictError
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from tests.accounting import assert_all_accounted_for, covered, ran, ranges, records, settle
from tests.builders import MINUTELY, RUN_ALL, SKIP, at
from tests.unit.misfires import BOUNDED, ENDING, POLICIES, outage, tick_through_faults
from tests.world import World

BEGINNING = "11:59:30"

# Changes during an outage


@POLICIES
@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "*/7 * * * *"},
        {"type": "INTERVAL", "schedule": "PT90S"},
        {"maxRuns": 20},
        {"jitterSec": 30},
        {"endAt": "2026-05-24T13:10:00Z"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_change_during_an_outage(
    world: World, fields: dict[str, Any], misfire: dict[str, Any]
) -> None:
    job = world.register(**MINUTELY, misfire=misfire)
    world.at("12:40:30")
    world.change(job, **fields)
    outage(world, until="13:20:15")

    settle(world)

    assert_all_accounted_for(world, job)
    expected = {"RUN_LATEST": "12:00-12:39 (40)", "SKIP": "12:00-12:40 (41)"}
    assert covered(world, job)[:1] == [expected[p] for p in [misfire["policy"]] if p in expected]


@POLICIES
def test_a_delete_during_an_outage(world: World, misfire: dict[str, Any]) -> None:
    job = world.register(**MINUTELY, misfire=misfire)
    world.at("12:40:30")
    world.delete(job)
    outage(world, until="13:20:15")

    settle(world)

    assert_all_accounted_for(world, job)
    assert ran(world, job) == [], "the remaining occurrences are CANCELLED or SKIPPED"


def test_a_recreated_job_shares_no_records_with_its_predecessor(world: World) -> None:
    old = world.register(**MINUTELY)
    world.at("12:40:30")
    world.delete(old)
    with pytest.raises(ConflictError):
        world.register(**MINUTELY)
    settle(world)
    assert_all_accounted_for(world, old)
    before = records(world, old)
    world.at("12:41:30")
    new = world.register(**MINUTELY)
    outage(world, until="13:20:15")

    settle(world)

    assert records(world, old) == before
    assert before, "the occurrences of the former job have records"
    assert covered(world, new) == ["12:42-13:19 (38)"]
    assert_all_accounted_for(world, new)


def test_an_occurrence_missed_before_a_change_of_policy(world: World) -> None:
    """`misfire` is not part of the schedule version: its value at the decision applies."""
    job = world.register(**MINUTELY, misfire=RUN_ALL)
    outage(world, until="12:30:15")
    world.tick()
    world.change(job, misfire=SKIP)

    settle(world)

    (format_time,) = covered(world, job)
    assert format_time.endswith("-12:29 (27)"), "the runs that were sent before the change do run"
    assert_all_accounted_for(world, job)


def test_what_is_put_on_record_is_not_decided_by_a_stale_read(world: World) -> None:
    job = world.register(misfire=SKIP)
    world.jobs.freeze()
    world.change(job, misfire=RUN_ALL)
    outage(world, until="12:30")

    world.tick()

    assert world.sent == ["report 12:00"]
    assert ranges(world, job) == []


# The last occurrence


@POLICIES
@pytest.mark.parametrize("fields", [BOUNDED, ENDING, {"type": "DELAY", "schedule": "PT10M"}])
def test_a_job_is_completed_with_its_last_occurrence_even_if_that_is_skipped(
    world: World, fields: dict[str, Any], misfire: dict[str, Any]
) -> None:
    job = world.register(**fields, misfire=misfire)
    outage(world)

    settle(world)

    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)
    assert len(ran(world, job)) == {"RUN_LATEST": 1, "SKIP": 0}.get(
        misfire["policy"], len(records(world, job))
    )


@pytest.mark.parametrize("call", ["jobs.complete", "runs.skip", "due.delete", "runs.between"])
@pytest.mark.parametrize("fault", ["refuse", "lose_answer"])
def test_a_store_that_does_not_answer_while_the_last_one_is_skipped(
    world: World, call: str, fault: str
) -> None:
    job = world.register(**BOUNDED, misfire=SKIP)
    outage(world)
    getattr(world.faults, fault)(call, times=1)
    tick_through_faults(world)

    settle(world)

    assert world.job(job.key).state is JobState.COMPLETED
    assert covered(world, job) == ["12:00-15:19 (200)"]
    assert_all_accounted_for(world, job)


# Changes of the jitter while a run is delayed


@pytest.mark.parametrize("change", [{"jitterSec": 0}, {"schedule": "30 * * * *", "jitterSec": 60}])
def test_a_delayed_run_is_not_late_because_the_jitter_changed(
    world: World, change: dict[str, Any]
) -> None:
    job = world.register(jitterSec=3600, misfire={"relevancyWindowSec": 60})
    due_at = job.due_at(at("12:00"))
    assert at("12:10") < due_at
    world.at("12:05")
    world.change(job, **change)

    world.clock.move_to(due_at)
    world.tick()
    world.worker().work()

    assert world.state(job, "12:00") is RunState.SUCCEEDED


def test_a_delayed_run_is_late_although_the_jitter_grew(world: World) -> None:
    job = world.register(jitterSec=5, misfire={"relevancyWindowSec": 60})
    world.at("12:00:03")
    changed = world.change(job, jitterSec=3600)
    assert at("12:10") < changed.fire_entry(at("12:00"), 1).at
    world.tick_at("12:00:05")

    world.at("12:05")
    world.worker().work()

    assert world.state(job, "12:00") is RunState.SKIPPED
