"""Occurrences that are noticed late: after an outage, a pause or a change."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.decisions import decide_covered
from nextfire.domain.errors import ConflictError, UnavailableError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from nextfire.usecases.dispatch.gates import Shares
from tests.accounting import assert_all_accounted_for, covered, ran, ranges, records, settle
from tests.builders import RUN_ALL, RUN_LATEST, SKIP, a_definition, a_job, at, run_key
from tests.fakes import InlineExecutor, Killed, LateExecutor
from tests.world import World

BEGINNING = "11:59:30"

POLICY_NAMES = ["RUN_ALL", "RUN_LATEST", "SKIP"]
POLICIES = pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=POLICY_NAMES)
HOURLY: dict[str, Any] = {}
MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}
TEN_SECONDS: dict[str, Any] = {"type": "INTERVAL", "schedule": "PT10S"}
JITTERED = MINUTELY | {"jitterSec": 300}
BOUNDED = MINUTELY | {"maxRuns": 200}
ENDING = MINUTELY | {"endAt": "2026-05-24T15:30:00Z"}
SOME_DATES: dict[str, Any] = {
    "type": "DATES",
    "schedule": [f"2026-05-24T{hour}:30:00Z" for hour in range(12, 23)],
}


def outage(world: World, *, until: str = "18:00:30") -> None:
    """Advance to *until* without watchers or workers, then start a new watcher."""
    world.at(until)
    world.new_watcher()


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
    assert report.notes == []

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


def tick_through_faults(world: World) -> None:
    """Tick four times and ignore failures of stores, then clear all faults."""
    for _ in range(4):
        with suppress(UnavailableError):
            world.tick()
        world.advance(seconds=1)
    world.faults.clear()


# Crashes, duplicates and lost answers


def dies_after(
    calls: int, executor: Executor, misfire: dict[str, Any], fields: dict[str, Any]
) -> bool:
    """Kill a watcher after *calls* calls while it catches up. Return whether it died."""
    world = World("11:59:30", executor=executor)
    job = world.register(**fields, misfire=misfire)
    world.register("once", type="ONCE", schedule="2026-05-24T12:05:00Z", misfire=misfire)
    world.tick()
    outage(world, until="12:08:30")
    world.faults.kill_after(calls)
    died = False
    try:
        for _ in range(4):
            world.tick()
            world.advance(seconds=1)
    except Killed:
        died = True
    world.faults.clear()
    world.new_watcher()
    world.advance(seconds=3)
    settle(world)
    for each in (job, world.job(job.key._replace(job_id="once"))):
        assert_all_accounted_for(world, each)
    return died


@POLICIES
@pytest.mark.parametrize("executor", [InlineExecutor(), LateExecutor()], ids=["inline", "late"])
@pytest.mark.parametrize("overlap", ["ALLOW", "REPLACE"])
def test_a_watcher_that_dies_anywhere_while_catching_up_loses_nothing(
    executor: Executor, misfire: dict[str, Any], overlap: str
) -> None:
    fields = MINUTELY | {"overlap": overlap, "maxRuns": 8}

    calls = next(n for n in count() if not dies_after(n, executor, misfire, fields))

    assert calls > 40


CALLS = ["jobs.get_many", "jobs.get", "runs.skip", "runs.between", "due.put", "due.read"]


@POLICIES
@pytest.mark.parametrize("call", [*CALLS, "due.delete", "queue.send"])
@pytest.mark.parametrize("fault", ["refuse", "lose_answer"])
def test_a_call_that_fails_while_catching_up_costs_nothing(
    world: World, misfire: dict[str, Any], call: str, fault: str
) -> None:
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=misfire)
    outage(world, until="12:20:30")
    getattr(world.faults, fault)(call, times=2)
    tick_through_faults(world)

    settle(world)

    assert_all_accounted_for(world, job)


@POLICIES
@pytest.mark.parametrize("fields", [MINUTELY, JITTERED], ids=["each minute", "jitter"])
def test_two_holders_catch_up_at_once(
    world: World, misfire: dict[str, Any], fields: dict[str, Any]
) -> None:
    job = world.register(**fields, misfire=misfire)
    outage(world, until="12:20:30")
    one, other = world.watcher, world.new_watcher()
    for n in range(40):
        for watcher in (one, other):
            watcher.poll(world.now)
        # The two watchers decide at different instants.
        one.release(world.now)
        world.advance(seconds=0.7 if n % 3 else 61)
        other.release(world.now)
        world.worker().work()

    settle(world)

    assert_all_accounted_for(world, job)


@POLICIES
def test_the_first_of_two_concurrent_skips_wins(world: World, misfire: dict[str, Any]) -> None:
    """The second holder reads before the first one writes; its clock is a minute ahead."""
    job = world.register(**MINUTELY, misfire=misfire)
    outage(world, until="12:20:30")
    other = world.dispatcher(9)

    def other_catches_up() -> None:
        world.advance(seconds=65)
        other.poll(world.now)
        other.release(world.now)

    world.faults.call_before_next("runs.skip", other_catches_up)
    world.tick()

    settle(world)

    assert_all_accounted_for(world, job)


@POLICIES
@pytest.mark.parametrize("left", [1, 3])
def test_entries_that_survived_their_delete_before_an_outage(
    world: World, misfire: dict[str, Any], left: int
) -> None:
    """The job then has two or more chains, which must merge."""
    job = world.register(**MINUTELY, misfire=misfire)
    world.due.deletes = False
    for minute in range(left):
        world.tick_at(f"12:{minute:02d}:00")
        world.worker().work()
    world.due.deletes = True
    outage(world, until="12:20:30")
    assert len(world.entries) > left

    settle(world)

    assert_all_accounted_for(world, job)
    assert ran(world, job)[:left] == ["12:00", "12:01", "12:02"][:left]


@pytest.mark.parametrize("misfire", [RUN_LATEST, SKIP], ids=lambda m: m["policy"])
def test_an_entry_that_survives_its_delete_in_the_catching_up_covers_nothing_again(
    world: World, misfire: dict[str, Any]
) -> None:
    """The entry is inside a recorded range, and a run follows that range."""
    job = world.register(**MINUTELY, misfire=misfire)
    world.due.deletes = False
    world.tick_at("12:00:00")
    world.worker().work()
    world.tick_at("12:01:00")  # there are entries for 12:00, 12:01 and 12:02
    world.worker().work()
    world.due.deletes = True
    outage(world, until="12:10:30")
    stale = [entry for entry in world.entries if entry.at <= at("12:02")]
    settle(world)
    world.due.put([replace(stale[-1], at=at("12:05"))], world.now)  # a stale entry, read late
    world.at("12:20:30")

    settle(world)

    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("misfire", [RUN_LATEST, SKIP], ids=lambda m: m["policy"])
def test_a_range_ends_before_a_run_with_a_record(world: World, misfire: dict[str, Any]) -> None:
    """The entry of 12:00 survived and its message was lost; 12:01 ran."""
    job = world.register(**MINUTELY, misfire=misfire)
    world.due.deletes = False
    world.tick_at("12:00:00")
    delivery = world.worker().receive()
    assert delivery is not None
    delivery.acknowledge()
    world.tick_at("12:01:00")
    world.worker().work()
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
    world.tick_at("12:00:00")
    world.worker().work()
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
    first = RunKey(job.key, run_id(job.uid, at("12:00")))
    covering = Run.skipped(first, "late", at("12:01:02"), covered_to=at("12:00:50"), covered=6)
    key = RunKey(job.key, run_id(job.uid, at(occurrence)))

    assert decide_covered(job, key, at("12:01:04"), lambda: [covering]) == covering


def test_an_occurrence_covered_under_a_replaced_schedule_does_not_run() -> None:
    """The current schedule says nothing about the interval of the former one."""
    before = a_job(**TEN_SECONDS, since=at("11:00"))
    job = replace(before.with_new_version(at("12:00:55")), definition=a_definition(**MINUTELY))
    first = RunKey(job.key, run_id(job.uid, at("12:00")))
    covering = Run.skipped(first, "late", at("12:01:02"), covered_to=at("12:00:50"), covered=6)
    key = RunKey(job.key, run_id(job.uid, at("12:00:50")))

    assert decide_covered(job, key, at("12:01:04"), lambda: [covering]) == covering


def test_an_occurrence_covered_by_the_relevancy_window_does_not_run() -> None:
    """12:01 was sent together with the ranges missed before it, but its successor was not stored.
    So the entry of 11:58 was decided again, when 12:01 was outside its window as well.
    """
    job = a_job(**MINUTELY, misfire=SKIP | {"relevancyWindowSec": 10}, since=at("11:00"))
    first = RunKey(job.key, run_id(job.uid, at("11:58")))
    covering = Run.skipped(first, "late", at("12:01:13"), covered_to=at("12:01"), covered=4)
    key = RunKey(job.key, run_id(job.uid, at("12:01")))

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
    key = RunKey(job.key, run_id(job.uid, at("12:00:20")))

    assert decide_covered(job, key, at("12:01:04"), lambda: [former]) is None


def test_no_records_are_read_for_an_occurrence_that_cannot_be_covered() -> None:
    def before() -> list[Run]:
        raise AssertionError

    often = a_job(**TEN_SECONDS, since=at("11:00"))
    minutely = a_job(**MINUTELY, since=at("11:00"))
    for job, late in ((often, 4), (minutely, 50)):
        key = RunKey(job.key, run_id(job.uid, at("12:00")))
        assert decide_covered(job, key, at("12:00") + timedelta(seconds=late), before) is None


def test_jitter_wider_than_the_period_is_no_lateness(world: World) -> None:
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
