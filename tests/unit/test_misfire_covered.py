"""An occurrence that a range covers does not run, whatever message or record there is of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.decisions import EARLIER, decide_covered
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.accounting import assert_all_accounted_for, covered, ran, settle
from tests.builders import MINUTELY, RUN_LATEST, SKIP, a_definition, a_job, at
from tests.unit.misfires import TEN_SECONDS, outage
from tests.world import World

BEGINNING = "11:59:30"


@pytest.mark.parametrize("misfire", [RUN_LATEST, SKIP], ids=lambda m: m["policy"])
def test_a_range_ends_before_a_run_with_a_record(world: World, misfire: dict[str, Any]) -> None:
    """The entry of 12:00 survived and its message was lost; 12:01 ran."""
    job = world.register(**MINUTELY, misfire=misfire)
    world.due.deletes = False
    world.tick_at("12:00:00")
    delivery = world.worker().receive()
    assert delivery is not None
    delivery.acknowledge()
    world.tick_and_work("12:01:00")
    world.due.deletes = True
    outage(world, until="12:10:30")

    settle(world)

    assert covered(world, job)[0] == "12:00-12:00 (1)"
    assert ran(world, job)[0] == "12:01"
    assert_all_accounted_for(world, job)


def test_a_message_of_the_first_missed_one_finds_it_skipped(world: World) -> None:
    """It was sent, its watcher died before the delete, and no worker took it."""
    job = world.register(**MINUTELY, misfire=SKIP)
    world.due.deletes = False
    world.tick_at("12:00:00")
    world.due.deletes = True
    outage(world, until="12:10:30")
    world.tick()
    assert covered(world, job)[0].startswith("12:00-12:09")

    handled = world.worker().work_one()

    assert handled.reason == "has ended SKIPPED"
    assert not handled.started
    settle(world)
    assert_all_accounted_for(world, job)


def test_a_run_that_was_taken_keeps_its_record(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.due.deletes = False
    world.tick_and_work("12:00:00")
    world.due.deletes = True
    outage(world, until="12:10:30")

    settle(world)

    assert ran(world, job)[0] == "12:00"
    assert covered(world, job) == ["12:01-12:09 (9)"]
    assert_all_accounted_for(world, job)


def test_what_was_sent_before_it_was_missed_does_not_run(world: World) -> None:
    """12:00 and 12:01 were sent, and the delete of the entry of 12:00 failed. Before a worker took
    them, a watcher found the entry late and recorded 12:00 to 12:09 as skipped.
    """
    job = world.register(**MINUTELY, misfire=SKIP)
    world.due.deletes = False
    world.tick_at("12:00:00")
    world.tick_at("12:01:00")
    world.due.deletes = True
    outage(world, until="12:10:30")

    settle(world)

    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("occurrence", ["12:00:20", "12:00:50"])
def test_a_covered_occurrence_does_not_run_even_if_it_is_not_late(
    occurrence: str,
) -> None:
    """Two watchers had the same entries of a job that is due every 10 s. One sent them; the other
    found the first one 62 s late and recorded all but the latest as skipped.
    """
    job = a_job(**TEN_SECONDS, since=at("11:00"))
    first = job.run_key(at("12:00"))
    covering = Run.skipped(first, "late", at("12:01:02"), covered_to=at("12:00:50"), covered=6)
    key = job.run_key(at(occurrence))

    assert decide_covered(job, key, at("12:01:04"), lambda: [covering]) == covering


def test_an_occurrence_covered_under_a_replaced_schedule_does_not_run() -> None:
    """The current schedule says nothing about the interval of the former one."""
    before = a_job(**TEN_SECONDS, since=at("11:00"))
    job = replace(before.with_new_version(at("12:00:55")), definition=a_definition(**MINUTELY))
    first = job.run_key(at("12:00"))
    covering = Run.skipped(first, "late", at("12:01:02"), covered_to=at("12:00:50"), covered=6)
    key = job.run_key(at("12:00:50"))

    assert decide_covered(job, key, at("12:01:04"), lambda: [covering]) == covering


def test_an_occurrence_covered_by_the_relevancy_window_does_not_run() -> None:
    """12:01 was sent together with the ranges missed before it, but its successor was not stored.
    So the entry of 11:58 was decided again, when 12:01 was outside its window as well.
    """
    job = a_job(**MINUTELY, misfire=SKIP | {"relevancyWindowSec": 10}, since=at("11:00"))
    first = job.run_key(at("11:58"))
    covering = Run.skipped(first, "late", at("12:01:13"), covered_to=at("12:01"), covered=4)
    key = job.run_key(at("12:01"))

    assert decide_covered(job, key, at("12:01:14"), lambda: [covering]) == covering


def test_a_job_whose_last_run_a_range_covers_is_completed(world: World) -> None:
    """A watcher covered both occurrences and died before it completed the job. Under the new policy
    the second one is sent, and its executor finds it covered.
    """
    job = world.register(**MINUTELY, maxRuns=2, misfire=SKIP)
    world.at("12:05")
    world.faults.refuse("jobs.complete")
    world.new_watcher()
    world.tick()
    job = world.change(world.job(job.key), misfire=RUN_LATEST)

    settle(world)

    assert covered(world, job) == ["12:00-12:01 (2)"]
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_range_of_a_former_creation_covers_no_run_of_this_one() -> None:
    job = a_job(**TEN_SECONDS, since=at("11:00"))
    first = RunKey(job.key, run_id("former01", at("12:00")))
    former = Run.skipped(first, "late", at("12:01:02"), covered_to=at("12:00:50"), covered=6)
    key = job.run_key(at("12:00:20"))

    assert decide_covered(job, key, at("12:01:04"), lambda: [former]) is None


def test_a_late_occurrence_reads_one_page_of_records() -> None:
    """Under overload all runs are late: more reads for each would make them later still."""
    job = a_job(**MINUTELY, since=at("11:00"))
    times = (at("12:00") - timedelta(minutes=n) for n in range(1, 61))
    records = (Run(job.run_key(time), RunState.SUCCEEDED) for time in times)

    assert decide_covered(job, job.run_key(at("12:00")), at("12:05"), lambda: records) is None
    assert 60 - len([*records]) == EARLIER


def test_a_range_with_a_record_inside_covers_what_follows() -> None:
    """An executor claimed 12:01 while a watcher wrote the range (see the open defects)."""
    job = a_job(**MINUTELY, since=at("11:00"))
    inside = Run(job.run_key(at("12:01")), RunState.SUCCEEDED)
    covering = Run.skipped(
        job.run_key(at("12:00")), "late", at("12:05"), covered_to=at("12:03"), covered=4
    )
    key = job.run_key(at("12:02"))

    assert decide_covered(job, key, at("12:06"), lambda: [inside, covering]) == covering


def test_no_records_are_read_for_an_occurrence_that_cannot_be_covered() -> None:
    def before() -> list[Run]:
        raise AssertionError

    often = a_job(**TEN_SECONDS, since=at("11:00"))
    minutely = a_job(**MINUTELY, since=at("11:00"))
    for job, late in ((often, 4), (minutely, 50)):
        key = job.run_key(at("12:00"))
        assert decide_covered(job, key, at("12:00") + timedelta(seconds=late), before) is None
