"""A backfill runs past occurrences, at most `AT_ONCE` at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.backfill import AT_ONCE, MOST, Order
from nextfire.domain.due import BackfillEntry, FireEntry
from nextfire.domain.errors import ChangedError, ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.find_outstanding import has_outstanding
from nextfire.usecases.manage_backfills import BackfillRange
from tests.accounting import assert_all_accounted_for, covered, format_time, settle
from tests.builders import RUN_LATEST, SKIP, at
from tests.fakes import Killed
from tests.world import World

BEGINNING = "11:59:30"

MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}


def begin(
    world: World, job: Job, first: str, to: str, *, backfill_id: str = "b", **more: Any
) -> Job:
    return world.backfills.begin(
        job.key,
        BackfillRange(at(first), at(to), **more),
        backfill_id=backfill_id,
        asked_at=world.now,
        now=world.now,
    )[0]


def backfilled(world: World, job: Job) -> list[Run]:
    """The runs of the job's backfills, in the order in which they began."""
    found = [
        run
        for key, run in world.runs.all.items()
        if (key.job, key.uid) == (job.key, job.uid) and run.trigger is Trigger.BACKFILL
    ]
    return sorted(found, key=lambda run: (run.not_before or world.now, run.key.run_id))


def times(runs: Sequence[Run]) -> list[str]:
    return sorted(format_time(run.key.scheduled_at) for run in runs)


def outstanding(world: World, job: Job) -> int:
    return sum(not run.state.ended for run in backfilled(world, job))


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
        RunKey(job.key, run_id(job.uid, at(time))) for time in ("11:57", "11:58", "11:59")
    }
    world.tick()
    assert_all_accounted_for(world, job)


def test_occurrences_that_the_schedule_has_yet_to_send_are_not_backfilled(world: World) -> None:
    job = world.register(**MINUTELY, misfire=SKIP)
    world.tick_at("12:00")
    world.worker().work()
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
    world.tick_at("12:00")
    world.worker().work()
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
        world.tick_at(time)
        world.worker().work()
    world.at("12:05")
    assert world.job(job.key).state is JobState.COMPLETED
    begun = begin(world, job, "11:58", "12:05")
    assert begun.backfilling is not None
    assert begun.backfilling.last == at("12:01")
    settle(world)
    assert times(backfilled(world, job)) == ["11:58", "11:59"]
    assert world.job(job.key).state is JobState.COMPLETED


def test_a_job_has_one_backfill_at_a_time_and_requests_are_idempotent(world: World) -> None:
    job = world.register(**MINUTELY)
    begun = begin(world, job, "11:00", "11:05")
    assert begin(world, job, "11:00", "11:05") == begun
    with pytest.raises(ConflictError, match="of 5 occurrences"):
        begin(world, job, "11:00", "11:05", backfill_id="c")
    settle(world)
    begin(world, job, "11:00", "11:10", backfill_id="c")
    settle(world)
    assert [r.request for r in backfilled(world, job)].count("b") == 5
    assert len(backfilled(world, job)) == 10


def test_it_is_asked_again_when_it_is_over_and_nothing_runs_twice(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:05")
    settle(world)
    begin(world, job, "11:00", "11:05")
    settle(world)
    assert {r.attempt for r in backfilled(world, job)} == {1}
    assert world.job(job.key).backfill is None


def test_a_stopped_backfill_begins_no_more_runs(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.tick()
    stopped = world.backfills.stop(job.key, now=world.now)
    assert stopped.backfilling is None
    settle(world)
    assert len(backfilled(world, job)) == AT_ONCE
    assert {r.state for r in backfilled(world, job)} == {RunState.SUCCEEDED}
    assert [type(e) for e in world.entries] == [FireEntry]
    with pytest.raises(NotFoundError, match="Backfill"):
        world.backfills.stop(job.key, now=world.now)


def test_it_is_begun_though_somebody_changes_the_job(world: World) -> None:
    job = world.register(**MINUTELY)
    world.faults.call_before_next("jobs.update", lambda: world.change(job, name="another"))

    begun = begin(world, job, "11:00", "11:35")

    assert world.job(job.key) == begun
    assert (begun.definition.name, begun.backfilling is None) == ("another", False)


def test_what_has_been_begun_leaves_no_entry(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    while len(backfilled(world, job)) <= AT_ONCE:
        world.advance(seconds=1)
        world.tick()
        world.worker().work()

    assert [e.ordinal for e in world.entries if isinstance(e, BackfillEntry)] == [AT_ONCE + 1]


def test_a_backfill_that_cannot_continue_is_retried_later(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.faults.refuse("runs.get", times=1)

    assert "waits" in "".join(world.tick().notes)
    assert outstanding(world, job) == 0
    world.advance(seconds=30)
    world.tick()
    assert outstanding(world, job) == AT_ONCE


def test_it_is_stopped_though_somebody_changes_the_job(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.faults.call_before_next("jobs.update", lambda: world.change(job, name="another"))

    stopped = world.backfills.stop(job.key, now=world.now)

    assert world.job(job.key) == stopped
    assert stopped.definition.name == "another"


def test_a_stopped_backfill_does_not_resume_with_the_next_one(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    for _ in range(3):
        world.tick()
        world.worker().work()
        world.advance(seconds=6)
        if len(backfilled(world, job)) > AT_ONCE:
            break
    world.backfills.stop(job.key, now=world.now)
    begin(world, job, "09:00", "09:35", backfill_id="c")
    for _ in range(3):
        world.tick()
        world.advance(seconds=6)
    new = [run for run in backfilled(world, job) if run.request == "c"]
    assert times(new) == [f"09:0{n}" for n in range(AT_ONCE)]


@pytest.mark.parametrize("how", ["pause", "delete", "change"])
def test_a_schedule_change_ends_the_backfill(world: World, how: str) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    world.tick()
    if how == "change":
        world.change(job, schedule="*/2 * * * *")
    else:
        getattr(world, how)(job)
    assert world.job(job.key).backfilling is None
    settle(world)
    ended = RunState.CANCELLED if how == "delete" else RunState.SUCCEEDED
    assert [r.state for r in backfilled(world, job)] == [ended] * AT_ONCE
    assert not [e for e in world.entries if isinstance(e, BackfillEntry)]


def test_a_payload_change_does_not_end_the_backfill(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:15")
    world.tick()
    world.change(job, payload={"a": 1})
    settle(world)
    assert len(backfilled(world, job)) == 15


def test_a_job_that_drains_waits_for_what_was_begun(world: World) -> None:
    job = world.register(**MINUTELY)
    # Before the period that `has_outstanding` searches for waiting runs and retries.
    long_ago = BackfillRange(at("09:00") - timedelta(days=5), at("09:35") - timedelta(days=5))
    world.backfills.begin(job.key, long_ago, backfill_id="b", asked_at=world.now, now=world.now)
    world.tick()
    latest = max((run.key for run in backfilled(world, job)), key=lambda key: key.run_id)
    world.manage_runs.cancel(latest, None)
    drained = world.manage.drain(job.key, None, now=world.now)
    assert has_outstanding(world.runs, drained, world.now)
    settle(world)
    assert not has_outstanding(world.runs, drained, world.now)
    assert len(backfilled(world, job)) == AT_ONCE


def test_it_goes_on_when_runs_die(world: World) -> None:
    job = world.register(**MINUTELY, retryPolicy={"maxAttempts": 1})
    begin(world, job, "11:00", "11:15")
    for _ in range(3):
        world.script(exit_code=1)
    settle(world)
    states = [r.state for r in backfilled(world, job)]
    assert (states.count(RunState.DEAD), len(states)) == (3, 15)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"overlap": "SKIP"}, RunState.SUCCEEDED),
        ({"overlap": "REPLACE"}, RunState.SUCCEEDED),
        ({"misfire": {"relevancyWindowSec": 5}}, RunState.SUCCEEDED),
    ],
)
def test_it_is_never_too_late_and_waits_for_its_turn(
    world: World, fields: dict[str, Any], state: RunState
) -> None:
    job = world.register(**MINUTELY, **fields)
    begin(world, job, "11:00", "11:05")
    settle(world)
    assert [r.state for r in backfilled(world, job)] == [state] * 5


def test_a_backfill_run_whose_message_was_lost_is_sent_again(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "09:00", "09:12")
    world.tick()
    world.advance(seconds=1)
    world.tick()
    assert len(world.queued) == AT_ONCE
    world.queue.queues["default"].purge()
    for _ in range(40):
        world.advance(seconds=30)
        world.tick()
        world.worker().work()
    settle(world)
    assert sum(sent.endswith(" #2") for sent in world.sent) == AT_ONCE
    assert [r.state for r in backfilled(world, job)] == [RunState.SUCCEEDED] * 12
    assert world.job(job.key).backfill is None


def test_one_that_waits_in_the_queue_is_not_sent_twice(world: World) -> None:
    job = world.register(schedule="0 0 1 1 *")
    _, yearly = world.backfills.begin(
        job.key,
        BackfillRange(at("11:00") - timedelta(days=800), at("11:00")),
        backfill_id="b",
        asked_at=world.now,
        now=world.now,
    )
    for _ in range(40):
        world.advance(seconds=60)
        world.tick()
    assert [m.dispatch for m in world.queue.log] == [1] * yearly.count


def test_a_record_that_does_not_decode_stops_nothing(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:15")
    world.tick()
    first = RunKey(job.key, run_id(job.uid, at("11:00")))
    world.runs.spoil(first)
    world.queue.queues["default"].purge()
    for _ in range(40):
        world.advance(seconds=30)
        world.tick()
        world.worker().work()
    assert world.job(job.key).backfill is None


def test_a_watcher_that_dies_anywhere_loses_none() -> None:
    for calls in range(300):
        world = World("11:59:30")
        world.tick()
        job = world.register(**MINUTELY)
        begin(world, job, "11:00", "11:12")
        world.faults.kill_after(calls)
        try:
            for _ in range(6):
                world.tick()
                world.advance(seconds=6)
                world.worker().work()
            over = True
        except Killed:
            over = False
        world.faults.clear()
        world.new_watcher()
        settle(world)
        assert len(backfilled(world, job)) == 12, calls
        assert {r.state for r in backfilled(world, job)} == {RunState.SUCCEEDED}, calls
        assert world.job(job.key).backfill is None, calls
        if over:
            return
    raise AssertionError("the backfill does not end")


def test_two_watchers_begin_no_more_than_one(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    other = world.dispatcher(99)
    for _ in range(12):
        for watcher in (world.watcher, other):
            watcher.poll(world.now)
            while watcher.next_at is not None and watcher.next_at <= world.now:
                watcher.release(world.now)
            assert outstanding(world, job) <= AT_ONCE
        world.worker().work()
        world.advance(seconds=6)
    settle(world)
    assert [r.attempt for r in backfilled(world, job)] == [1] * 35


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
    with pytest.raises(ConflictError, match="dispatcher is behind"):
        begin(world, job, "11:00", "12:30")
    begin(world, job, "11:00", "11:05")


def test_a_repeated_request_does_not_restart_a_stopped_backfill(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:40", "11:55")
    stopped = world.backfills.stop(job.key, now=world.now)

    again = begin(world, job, "11:40", "11:55")

    assert again == stopped
    assert world.job(job.key).backfilling is None
    assert begin(world, job, "11:40", "11:55", backfill_id="c").backfilling is not None
