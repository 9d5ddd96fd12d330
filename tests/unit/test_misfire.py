"""Occurrences that are noticed late, after an outage: the policy decides, and work is bounded."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.occurrences import JobState
from nextfire.domain.run import RunState
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, covered, ran, ranges, settle
from tests.builders import MINUTELY, RUN_ALL, RUN_LATEST, SKIP, at, run_key
from tests.unit.misfires import (
    BOUNDED,
    ENDING,
    JITTERED,
    POLICIES,
    POLICY_NAMES,
    TEN_SECONDS,
    outage,
)
from tests.world import World

BEGINNING = "11:59:30"

SOME_DATES: dict[str, Any] = {
    "type": "DATES",
    "schedule": [f"2026-05-24T{hour}:30:00Z" for hour in range(12, 23)],
}


# Outages


@pytest.mark.parametrize(
    ("misfire", "runs", "covers"),
    [
        (RUN_ALL, [f"{hour}:00" for hour in range(12, 19)], []),
        (RUN_LATEST, ["18:00"], ["12:00-17:00 (6)"]),
        (SKIP, ["18:00"], ["12:00-17:00 (6)"]),  # 18:00 is only 30 s late
    ],
    ids=POLICY_NAMES,
)
def test_an_outage_of_six_hours(
    world: World, misfire: dict[str, Any], runs: list[str], covers: list[str]
) -> None:
    job = world.register(misfire=misfire)
    outage(world)

    settle(world)

    assert (ran(world, job), covered(world, job)) == (runs, covers)
    assert_all_accounted_for(world, job)
    assert [entry.at for entry in world.entries] == [at("19:00")]


def test_skip_skips_late_occurrences_and_runs_recent_ones(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    outage(world, until="12:09:30")

    settle(world)

    assert covered(world, job) == ["12:00-12:08 (9)"]
    assert ran(world, job) == ["12:09"]


def test_a_range_says_why(world: World) -> None:
    job = world.register(misfire=SKIP)
    outage(world, until="18:30:30")

    report = world.tick()

    (record,) = ranges(world, job)
    assert report.skipped == [record]
    assert record.reason == "23430 s late; misfire policy SKIP"
    assert (record.state, record.finished_at) == (RunState.SKIPPED, at("18:30:30"))


def test_the_one_that_runs_says_why(world: World) -> None:
    world.register()
    outage(world, until="14:30")

    report = world.tick()
    report += world.tick()

    (dispatched,) = report.dispatched
    assert dispatched.reason == "1800 s late; misfire policy RUN_LATEST: the latest"


@POLICIES
@pytest.mark.parametrize(
    "fields",
    [MINUTELY, TEN_SECONDS, JITTERED, BOUNDED, ENDING, SOME_DATES],
    ids=["each minute", "each 10 s", "jitter", "maxRuns", "endAt", "dates"],
)
def test_no_burst_of_runs_after_an_outage(
    world: World, fields: dict[str, Any], misfire: dict[str, Any]
) -> None:
    job = world.register(**fields, misfire=misfire)
    all_at_once = misfire == RUN_ALL
    outage(world, until="13:00:30" if all_at_once and fields == TEN_SECONDS else "18:00:30")

    most = settle(world)

    assert_all_accounted_for(world, job)
    assert most <= 2, "occurrences run one after another, however many were missed"
    assert len(ranges(world, job)) <= (0 if all_at_once else 8 if fields == JITTERED else 2)
    if not all_at_once:
        assert len(ran(world, job)) <= 8
    ended = fields in (BOUNDED, ENDING)
    assert world.job(job.key).state is (JobState.COMPLETED if ended else JobState.ACTIVE)


@POLICIES
@pytest.mark.parametrize("overlap", ["QUEUE", "SKIP", "REPLACE"])
def test_an_outage_of_a_job_whose_runs_wait_for_each_other(
    world: World, overlap: str, misfire: dict[str, Any]
) -> None:
    job = world.register(**MINUTELY, overlap=overlap, misfire=misfire)
    outage(world, until="13:30:30")

    for _ in range(60):
        world.tick()  # no worker runs yet
        assert len(world.queued) <= 20
        world.advance(seconds=1)
    settle(world)

    assert_all_accounted_for(world, job)


def test_many_jobs_are_caught_up_side_by_side(world: World) -> None:
    jobs = [world.register(f"job{n}", **MINUTELY) for n in range(110)]
    outage(world)

    assert settle(world) <= 110

    assert {str(covered(world, job)) for job in jobs} == {"['12:00-17:59 (360)']"}
    assert_all_accounted_for(world, jobs[-1])


def test_skipped_ranges_of_all_jobs_are_recorded_and_reported_once(world: World) -> None:
    for n in range(3):
        world.register(f"job{n}", misfire=SKIP)
    outage(world, until="18:30:30")
    world.due.deletes = False
    report = world.tick()
    assert len(report.skipped) == 3
    assert report.notes == ["3 entries are not deleted yet"]

    world.due.deletes = True
    world.new_watcher()
    assert [world.tick().skipped for _ in range(2)] == [[], []]


def test_a_failed_write_of_a_skipped_range_is_retried(world: World) -> None:
    world.register(misfire=SKIP)
    outage(world, until="18:30:30")
    world.faults.refuse("runs.skip", times=2)

    refused = world.tick()
    assert (refused.quarantined, refused.skipped) == (0, [])
    assert world.tick().notes == [], "the watcher does not retry at once"

    world.advance(seconds=1)
    assert len(world.tick().skipped) == 1


def test_a_range_that_cannot_be_recorded_is_quarantined(world: World) -> None:
    job = world.register(misfire=SKIP)
    world.runs.spoil(run_key(uid=job.uid))
    outage(world, until="18:30:30")

    assert world.tick().quarantined > 0


def test_work_on_missed_occurrences_is_bounded_per_release(world: World) -> None:
    """A release must be short to keep the lease; later releases do the rest."""
    jobs = [world.register(f"job{n}", misfire=SKIP) for n in range(30)]
    outage(world, until="18:30:30")
    world.faults.call_before_each("runs.skip", lambda: world.advance(seconds=0.3))

    world.watcher.poll(world.now)
    before = world.now
    report = world.watcher.release(before)

    assert world.now - before < timedelta(seconds=2)
    assert 0 < len(report.skipped) < 30
    world.faults.clear()
    settle(world)
    for job in jobs:
        assert_all_accounted_for(world, job)


def test_jitter_wider_than_the_period_is_not_lateness(world: World) -> None:
    """A run delayed because its predecessor has jitter is not missed."""
    job = world.register(**MINUTELY, jitterSec=600)
    while world.now < at("13:00"):
        world.tick()
        world.worker().work()
        world.advance(seconds=5)

    assert ranges(world, job) == []
    assert len(ran(world, job)) > 45


@pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=lambda m: m["policy"])
@pytest.mark.parametrize("overlap", ["ALLOW", "QUEUE"])
def test_occurrences_are_recorded_once_while_the_queue_rejects_messages(
    world: World, misfire: dict[str, Any], overlap: str
) -> None:
    job = world.register(type="INTERVAL", schedule="PT10S", misfire=misfire, overlap=overlap)
    world.tick_at("11:59:40")
    world.queue.refuses = lambda _: True
    for second in range(0, 90, 2):
        world.at("11:59:50")
        world.advance(seconds=second)
        world.tick()
    assert len(world.entries) == 1, "a chain has one entry"
    world.queue.refuses = lambda _: False

    settle(world)

    assert_all_accounted_for(world, job)


def test_an_unreadable_backlog_does_not_stop_other_pools(world: World) -> None:
    def refuse() -> None:
        raise PermissionError("the queue was deleted")

    world.shares = Shares(backlogs={"default": 100, "batch": 100})
    world.new_watcher()
    world.register("lost", target={"pool": "batch", "handler": "x"})
    world.register("good", tenant="other")
    world.faults.call_before_next("queue.backlog", refuse)

    world.tick_at("12:00")

    assert "good 12:00" in world.sent


def test_a_tenant_whose_jobs_cannot_be_read_stops_no_other(world: World) -> None:
    bad = world.register("bad", type="ONCE", schedule="2026-05-24T12:00:00Z", misfire=SKIP)
    world.register("good", tenant="other", schedule="30 * * * *")
    world.at("12:30")
    world.faults.refuse("jobs.get_many", times=1)

    world.new_watcher()
    report = world.tick()

    assert world.sent == ["good 12:30"]
    assert any("waits: jobs.get_many: refused" in note for note in report.notes)
    world.tick_at("12:30:05")
    settle(world)
    assert_all_accounted_for(world, bad)


def test_a_run_after_missed_occurrences_waits_until_they_are_recorded(world: World) -> None:
    """A watcher died before it deleted an entry whose successor it had stored. Later the first
    entry is missed, and the second is not yet.
    """
    job = world.register(**TEN_SECONDS, misfire=RUN_LATEST, overlap="ALLOW")
    first = dict(world.due.items)
    world.tick_at("11:59:40")
    world.queue.queues["default"].purge()
    world.due.items.update(first)
    world.at("12:00:45")
    world.new_watcher()
    world.faults.call_before_next("runs.skip", lambda: world.worker().work_one())

    world.tick()
    settle(world)

    assert_all_accounted_for(world, job)
