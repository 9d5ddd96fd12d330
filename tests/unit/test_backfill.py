"""A backfill runs past occurrences, at most `AT_ONCE` at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.backfill import AT_ONCE, MOST, Order
from nextfire.domain.due import FireEntry
from nextfire.domain.errors import ChangedError, ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.manage_backfills import BackfillRange
from tests.accounting import assert_all_accounted_for, covered, settle
from tests.builders import MINUTELY, RUN_LATEST, SKIP, at
from tests.unit.backfilling import backfilled, begin, outstanding, times
from tests.world import World

BEGINNING = "11:59:30"


def test_occurrences_before_the_job_was_created_run_and_the_schedule_continues(
    world: World,
) -> None:
    job = world.register(**MINUTELY)

    begun = begin(world, job, "11:50", "11:55", reason="a reason")

    asked = begun.backfilling
    assert asked is not None
    assert (asked.first, asked.last, asked.count) == (at("11:50"), at("11:54"), 5)
    assert begun.revision == job.revision + 1
    settle(world)
    runs = backfilled(world, job)
    assert times(runs) == ["11:50", "11:51", "11:52", "11:53", "11:54"]
    assert {(r.state, r.attempt, r.request) for r in runs} == {(RunState.SUCCEEDED, 1, "b")}
    assert {r.request_reason for r in runs} == {"a reason"}
    over = world.job(job.key)
    assert (over.backfill, over.state) == (None, JobState.ACTIVE)
    assert [type(e) for e in world.entries] == [FireEntry]
    world.tick_at("12:00:30")
    settle(world)
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("overlap", ["ALLOW", "QUEUE", "SKIP", "REPLACE"])
def test_a_few_at_a_time_in_the_order_asked_for(world: World, order: Order, overlap: str) -> None:
    job = world.register(**MINUTELY, overlap=overlap)
    begin(world, job, "11:00", "11:35", order=order)
    batches: list[list[str]] = []
    for _ in range(12):
        for works in (False, False, True):  # the next batch begins after the previous one has ended
            world.tick()
            assert outstanding(world, job) <= AT_ONCE
            begun = {each for batch in batches for each in batch}
            new = {*times(backfilled(world, job))} - begun
            batches += [sorted(new)] if new else []
            if works:
                world.worker().work()
            world.advance(seconds=6)
    assert [len(batch) for batch in batches] == [10, 10, 10, 5]
    assert (batches[0][0] == "11:00") == (order is Order.OLDEST_FIRST)
    in_row = [min(batch) for batch in batches]
    assert in_row == sorted(in_row, reverse=order is Order.NEWEST_FIRST)
    settle(world)
    assert {r.state for r in backfilled(world, job)} == {RunState.SUCCEEDED}
    assert_all_accounted_for(world, job)


def test_recorded_and_covered_occurrences_do_not_run_again(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_LATEST)
    world.tick_at("12:00")
    world.at("12:10:30")
    settle(world)
    assert covered(world, job) == ["12:01-12:09 (9)"]
    before = {r.key for r in world.runs.all.values()}

    begin(world, job, "11:57", "12:11")
    settle(world)

    assert {r.key for r in world.runs.all.values()} - before == {
        job.run_key(at(time)) for time in ("11:57", "11:58", "11:59")
    }
    world.tick()
    assert_all_accounted_for(world, job)


def test_occurrences_that_the_schedule_has_yet_to_send_are_not_backfilled(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.tick_and_work("12:00")
    world.at("12:10:30")  # no tick in the meantime
    begun = begin(world, job, "11:58", "12:30")
    assert begun.backfilling is not None
    assert begun.backfilling.last == at("12:00")
    settle(world)
    assert times(backfilled(world, job)) == ["11:58", "11:59"]
    assert covered(world, job) == ["12:01-12:09 (9)"]
    assert_all_accounted_for(world, job)


def test_occurrences_delayed_by_jitter_are_not_backfilled(world: World) -> None:
    job = world.register(**MINUTELY, jitterSec=50)
    world.tick_at("12:00:01")
    begun = begin(world, job, "11:55", "12:00:01")
    assert begun.backfilling is not None
    assert begun.backfilling.last == at("11:59")


def test_a_backfill_uses_the_current_schedule(world: World) -> None:
    job = world.register(schedule="*/10 * * * *")
    world.tick_and_work("12:00")
    world.at("12:05:30")
    world.change(job, **MINUTELY)
    begin(world, job, "11:58", "12:05:30")
    settle(world)
    # The former schedule owned 12:00, and it ran.
    assert times(backfilled(world, job)) == ["11:58", "11:59", *(f"12:0{n}" for n in range(1, 6))]
    assert_all_accounted_for(world, job)


def test_a_backfill_above_the_limit_reports_its_size(world: World) -> None:
    job = world.register(**MINUTELY)
    with pytest.raises(InvalidInputError, match="there are 120 occurrences") as refused:
        begin(world, job, "09:00", "11:00", at_most=100)
    assert refused.value.field == "max"
    assert f"or raise `max`, to {MOST} at most." in str(refused.value)
    begin(world, job, "09:00", "11:00", at_most=120)
    year = BackfillRange(at("11:00") - timedelta(days=365), at("11:00"))
    other = world.register("other", **MINUTELY)
    with pytest.raises(InvalidInputError, match=f"525600 .* {MOST} at most") as largest:
        world.backfills.begin(other.key, year, backfill_id="b", asked_at=world.now, now=world.now)
    assert world.job(other.key) == other
    assert "raise `max`" not in str(largest.value)  # it is the largest already


@pytest.mark.parametrize(
    ("first", "to"), [("11:55", "11:55"), ("11:55", "11:50"), ("12:01", "12:30")]
)
def test_a_time_without_an_occurrence_that_is_over_is_refused(
    world: World, first: str, to: str
) -> None:
    job = world.register(**MINUTELY)
    with pytest.raises(InvalidInputError, match="from"):
        begin(world, job, first, to)
    assert world.job(job.key) == job


@pytest.mark.parametrize(
    ("schedule", "found"),
    [
        ({"type": "INTERVAL", "schedule": "PT20M"}, ["10:39:30", "10:59:30", "11:19:30"]),
        (
            {"type": "INTERVAL", "schedule": "PT20M", "startAt": "2026-05-24T10:50:00Z"},
            ["10:50", "11:10"],
        ),
        ({"type": "CRON", "schedule": "*/30 * * * *"}, ["10:30", "11:00"]),
        (
            {
                "type": "DATES",
                "schedule": [
                    "2026-05-24T11:00:00Z",
                    "2026-05-24T10:20:00Z",
                    "2026-05-24T13:00:00Z",
                ],
            },
            ["10:20", "11:00"],
        ),
    ],
)
def test_every_kind_of_schedule_has_a_past(
    world: World, schedule: dict[str, Any], found: list[str]
) -> None:
    job = world.register(**schedule)
    begin(world, job, "10:20", "11:20")
    settle(world)
    assert times(backfilled(world, job)) == found
    assert_all_accounted_for(world, job)


def test_no_more_than_max_runs_counts_are_made_up_for(world: World) -> None:
    job = world.register(**MINUTELY, maxRuns=2)
    for time in ("12:00", "12:01"):
        world.tick_and_work(time)
    world.at("12:05")
    assert world.job(job.key).state is JobState.COMPLETED
    begun = begin(world, job, "11:58", "12:05")
    assert begun.backfilling is not None
    assert begun.backfilling.last == at("12:01")
    settle(world)
    assert times(backfilled(world, job)) == ["11:58", "11:59"]
    assert world.job(job.key).state is JobState.COMPLETED


def test_jobs_that_cannot_be_backfilled_are_rejected(world: World) -> None:
    paused = world.pause(world.register("paused", **MINUTELY))
    manual = world.register("manual", type="MANUAL", schedule=None)
    gone = world.delete(world.register("gone", **MINUTELY))
    for job, named in ((paused, "PAUSED"), (manual, "MANUAL")):
        with pytest.raises(ConflictError, match=named):
            begin(world, job, "11:00", "11:05")
    with pytest.raises(NotFoundError):
        begin(world, gone, "11:00", "11:05")
    with pytest.raises(NotFoundError):
        world.backfills.stop(gone.key, now=world.now)
    job = world.register(**MINUTELY)
    missing = replace(job, key=job.key._replace(job_id="missing"))
    with pytest.raises(NotFoundError):
        begin(world, missing, "11:00", "11:05")
    wanted = BackfillRange(at("11:00"), at("11:05"))
    with pytest.raises(ChangedError):
        world.backfills.begin(
            job.key, wanted, backfill_id="b", asked_at=world.now, now=world.now, expected=["x"]
        )


def test_a_backlogged_dispatcher_limits_backfills_to_occurrences_before_the_job(
    world: World,
) -> None:
    job = world.register(**MINUTELY)
    world.advance(hours=3)
    with pytest.raises(ConflictError, match="watcher is behind"):
        begin(world, job, "11:00", "12:30")
    begin(world, job, "11:00", "11:05")
