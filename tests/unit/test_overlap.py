"""Overlapping runs of one job under each overlap policy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from nextfire.domain.decisions import MAX_OUTSTANDING, decide_overlap
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.accounting import assert_all_accounted_for, covered, ran, records, settle
from tests.builders import LEASE, RUN_ALL, RUN_LATEST, SKIP, a_message, at
from tests.fakes import InlineExecutor, Killed
from tests.world import World

BEGINNING = "11:59:30"

MINUTELY: dict[str, Any] = {"schedule": "* * * * *"}
EXCLUSIVE = ["QUEUE", "SKIP", "REPLACE"]


def end_of(world: World, job: Job, time: str) -> tuple[str, str]:
    """The state and the reason of the run of *time*."""
    run = world.run(job, time)
    return run.state.value, run.reason or ""


# The truth table: how 12:00 and 12:01 end, by the state of 12:00 at 12:01


RAN, SKIPPED, REPLACED = "SUCCEEDED", "SKIPPED", "CANCELLED"


def run_past_the_next(world: World) -> None:
    """Run 12:00 until 12:01:30, with a tick at 12:01."""
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.script(lasts=timedelta(seconds=90))
    advance = world.clock.advance
    ticked: list[bool] = []

    def watched(*args: Any, **units: float) -> Any:
        now = advance(*args, **units)
        if world.now >= at("12:01:00") and not ticked:
            ticked.append(True)
            world.tick()
        return now

    world.clock.advance = watched  # type: ignore[method-assign]
    try:
        world.worker("a").handle(delivery)
    finally:
        world.clock.advance = advance  # type: ignore[method-assign]
    assert ticked


@pytest.mark.parametrize(
    ("overlap", "first", "second"),
    [
        ("ALLOW", RAN, RAN),
        ("QUEUE", RAN, RAN),
        ("SKIP", RAN, SKIPPED),
        ("REPLACE", SKIPPED, RAN),
    ],
)
def test_the_predecessor_is_queued(world: World, overlap: str, first: str, second: str) -> None:
    job = world.register(**MINUTELY, overlap=overlap, endAt="2026-05-24T12:01:00Z")
    world.tick_at("12:00")
    world.tick_at("12:01")
    assert world.queued == ["report 12:00", "report 12:01"]
    world.advance(seconds=1)

    world.worker().work()

    assert end_of(world, job, "12:00")[0] == first
    assert end_of(world, job, "12:01")[0] == second
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize(
    ("overlap", "first", "second"),
    [
        ("ALLOW", RAN, RAN),
        ("QUEUE", RAN, RAN),
        ("SKIP", RAN, SKIPPED),
        ("REPLACE", REPLACED, RAN),
    ],
)
def test_the_predecessor_is_running(world: World, overlap: str, first: str, second: str) -> None:
    job = world.register(**MINUTELY, overlap=overlap, endAt="2026-05-24T12:01:00Z")
    world.tick_at("12:00")
    run_past_the_next(world)
    ended_at = world.now
    world.worker().work()

    assert end_of(world, job, "12:00")[0] == first
    assert end_of(world, job, "12:01")[0] == second
    if overlap == "REPLACE":
        assert ended_at < at("12:01:30"), "the run stops at its next heartbeat"
        reason = "overlap policy REPLACE: replaced by the occurrence at 2026-05-24T12:01:00Z"
        assert end_of(world, job, "12:00")[1] == reason
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize(
    ("overlap", "first", "second"),
    [
        ("ALLOW", RAN, RAN),
        ("QUEUE", RAN, RAN),
        ("SKIP", RAN, SKIPPED),
        ("REPLACE", REPLACED, RAN),
    ],
)
def test_the_predecessor_waits_for_its_retry(
    world: World, overlap: str, first: str, second: str
) -> None:
    retry = {"maxAttempts": 3, "initialDelayMs": 300_000}
    job = world.register(
        **MINUTELY, overlap=overlap, retryPolicy=retry, endAt="2026-05-24T12:01:00Z"
    )
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:01")

    world.worker().work()
    assert end_of(world, job, "12:01")[0] == second, "it does not wait for the retry"
    settle(world)

    assert end_of(world, job, "12:00")[0] == first
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("overlap", ["ALLOW", *EXCLUSIVE])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_predecessor_has_ended(world: World, overlap: str, exit_code: int) -> None:
    job = world.register(
        **MINUTELY,
        overlap=overlap,
        retryPolicy={"maxAttempts": 1},
        endAt="2026-05-24T12:01:00Z",
    )
    world.tick_at("12:00")
    world.script(exit_code=exit_code)
    world.worker().work_one()
    world.tick_at("12:01")

    world.worker().work()

    assert end_of(world, job, "12:00")[0] == ("DEAD" if exit_code else RAN)
    assert end_of(world, job, "12:01")[0] == RAN
    assert_all_accounted_for(world, job)


# Mutual exclusion


@pytest.mark.parametrize("overlap", EXCLUSIVE)
def test_no_two_run_at_once(world: World, overlap: str) -> None:
    world.register(**MINUTELY, overlap=overlap)
    world.tick_at("12:00")
    delivery = world.worker("a").receive()
    assert delivery is not None
    world.tick_at("12:00:59")
    delivery.hide(timedelta(seconds=60))
    world.tick_at("12:01")

    assert world.queued == ["report 12:00", "report 12:01"]
    assert world.worker("b").receive() is None

    delivery.acknowledge()
    assert world.worker("b").receive() is not None


def test_runs_of_a_job_that_allows_it_run_side_by_side(world: World) -> None:
    world.register(**MINUTELY)
    world.tick_at("12:00")
    assert world.worker("a").receive() is not None
    world.tick_at("12:01")

    assert world.worker("b").receive() is not None


def test_other_jobs_do_not_wait(world: World) -> None:
    world.register("one", **MINUTELY, overlap="QUEUE")
    world.register("other", **MINUTELY, overlap="QUEUE")
    world.register("one", tenant="rival", **MINUTELY, overlap="QUEUE")
    world.tick_at("12:00")

    assert all(world.worker(name).receive() is not None for name in "abc")


def test_a_retry_is_of_its_job_s_group(world: World) -> None:
    """So no attempt of one run overlaps with another run of the job."""
    world.register(**MINUTELY, overlap="QUEUE", retryPolicy={"initialDelayMs": 30_000})
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:00:31")
    assert world.queued == ["report 12:00 #2"]
    assert world.worker("a").receive() is not None
    world.tick_at("12:01")

    assert world.worker("b").receive() is None


# At most twenty


@pytest.mark.parametrize("misfire", [RUN_ALL, RUN_LATEST, SKIP], ids=lambda m: m["policy"])
@pytest.mark.parametrize("overlap", EXCLUSIVE)
def test_at_most_twenty_wait_in_the_queue_the_others_in_the_table(
    world: World, overlap: str, misfire: dict[str, Any]
) -> None:
    job = world.register(**MINUTELY, overlap=overlap, misfire=misfire)
    for _ in range(70):
        world.advance(seconds=30)
        world.tick()
        assert len(world.queued) <= 20
    assert len(world.queued) == 20
    assert len({entry.sort_key for entry in world.entries}) == 1, "one entry waits in the table"

    settle(world)

    assert_all_accounted_for(world, job)
    if (misfire, overlap) == (RUN_ALL, "QUEUE"):
        assert len(ran(world, job)) == len(records(world, job)), "nothing was skipped"


def test_a_waiting_occurrence_is_sent_when_a_run_has_ended(world: World) -> None:
    world.register(**MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    for _ in range(50):
        world.advance(seconds=30)
        world.tick()
    assert len(world.queued) == 20

    world.worker().work_one()
    world.advance(seconds=6)
    world.tick()

    assert len(world.queued) == 20
    assert world.queued[-1] == "report 12:20"


def test_a_job_that_waits_holds_up_no_other(world: World) -> None:
    world.register("slow", **MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    for _ in range(50):
        world.advance(seconds=30)
        world.tick()
    world.register("quick", **MINUTELY)
    world.advance(minutes=1)

    world.tick()

    assert any(message.startswith("quick") for message in world.queued)


def test_the_runs_of_a_deleted_job_make_room(world: World) -> None:
    """The runs end without a start, and the chain of earlier occurrences continues."""
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    world.at("12:40:30")
    world.delete(job)

    settle(world, at_most=400)

    assert len(records(world, job)) == 41
    assert_all_accounted_for(world, job)


def test_entries_of_a_deleted_job_do_not_wait_for_lost_messages(world: World) -> None:
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=RUN_ALL)
    world.at("12:40:30")
    world.tick()
    while len(queue := world.queue.queues["default"]) < MAX_OUTSTANDING:
        world.advance(seconds=1)
        world.tick()
    queue.purge()
    world.delete(job)

    settle(world, at_most=400)

    assert len(records(world, job)) == 41 - MAX_OUTSTANDING


def test_missed_occurrences_of_a_deleted_job_do_not_wait_for_lost_messages(world: World) -> None:
    job = world.register(**MINUTELY, overlap="QUEUE", misfire=SKIP)
    for minute in range(26):
        world.at(f"12:{minute:02}:01")
        world.tick()
    world.queue.queues["default"].purge()
    world.delete(job)
    world.at("12:40:30")

    settle(world, at_most=100)

    assert covered(world, job) == ["12:20-12:25 (6)"]


def recreated(world: World, overlap: str, *, skipped: str) -> Job:
    """Recreate a deleted job under its id. The old one has a SKIPPED record of *skipped*."""
    former = world.register(**MINUTELY)
    world.delete(former)
    key = RunKey(former.key, run_id(former.uid, at(skipped)))
    world.runs.items[key] = Run.skipped(key, "skipped on request", world.now)
    return world.register(**MINUTELY, overlap=overlap, misfire=RUN_LATEST)


def test_records_of_a_former_job_do_not_hold_up_its_successor(world: World) -> None:
    job = recreated(world, "QUEUE", skipped="12:20:30")
    world.at("12:40:30")

    settle(world, at_most=100)

    assert ran(world, job) == ["12:40"]
    assert_all_accounted_for(world, job)


def test_records_of_a_former_job_do_not_hide_a_running_run(world: World) -> None:
    job = recreated(world, "SKIP", skipped="12:00:30")
    world.tick_at("12:00")

    run_past_the_next(world)
    world.worker("b").work()

    assert end_of(world, job, "12:01")[0] == SKIPPED


# Replacing


def replaced_at(calls: int) -> bool:
    """12:00 waits for its retry. Kill the watcher after *calls* calls at 12:01."""
    world = World("11:59:30", executor=InlineExecutor())
    world.tick()
    retry = {"initialDelayMs": 300_000}
    job = world.register(
        **MINUTELY, overlap="REPLACE", retryPolicy=retry, endAt="2026-05-24T12:02:00Z"
    )
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.at("12:01")
    world.faults.kill_after(calls)
    try:
        world.tick()
    except Killed:
        died = True
    else:
        died = False
    world.faults.clear()
    world.new_watcher()
    world.tick_at("12:01:03")
    assert end_of(world, job, "12:00")[0] == REPLACED
    world.worker().work()
    assert end_of(world, job, "12:01")[0] == RAN
    settle(world)
    assert_all_accounted_for(world, job)
    return died


def test_a_watcher_that_dies_anywhere_between_stop_and_send_replaces_all_the_same() -> None:
    calls = next(calls for calls in count() if not replaced_at(calls))

    assert calls > 5


@pytest.mark.parametrize("fault", ["refuse", "lose_answer"])
def test_an_unanswered_stop_is_retried(world: World, fault: str) -> None:
    job = world.register(
        **MINUTELY,
        overlap="REPLACE",
        retryPolicy={"initialDelayMs": 300_000},
        endAt="2026-05-24T12:01:00Z",
    )
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    getattr(world.faults, fault)("runs.stop", times=1)
    world.tick_at("12:01")
    assert world.run(job, "12:00").state is not RunState.SUCCEEDED

    settle(world)

    assert end_of(world, job, "12:00")[0] == REPLACED
    assert end_of(world, job, "12:01")[0] == RAN
    assert_all_accounted_for(world, job)


def test_a_run_whose_worker_vanished_is_replaced(world: World) -> None:
    job = world.register(**MINUTELY, overlap="REPLACE", endAt="2026-05-24T12:01:00Z")
    world.tick_at("12:00")
    lose_the_worker(world)
    world.tick_at("12:01")
    assert world.run(job, "12:00").cancel_requested

    settle(world)

    run = world.run(job, "12:00")
    assert (run.state, run.attempt) == (RunState.CANCELLED, 1), "no takeover of a cancelled run"
    assert end_of(world, job, "12:01")[0] == RAN
    assert_all_accounted_for(world, job)


def lose_the_worker(world: World) -> None:
    """A worker claims the run and dies."""
    delivery = world.worker("lost").receive()
    assert delivery is not None

    def die() -> None:
        raise Killed

    world.script(meanwhile=die)
    with pytest.raises(Killed):
        world.worker("lost").handle(delivery)


@pytest.mark.parametrize("overlap", EXCLUSIVE)
def test_the_run_of_a_vanished_worker_comes_before_the_next_one(world: World, overlap: str) -> None:
    job = world.register(**MINUTELY, overlap=overlap, endAt="2026-05-24T12:01:00Z")
    world.tick_at("12:00")
    lose_the_worker(world)
    world.tick_at("12:01")
    world.advance(seconds=1)

    settle(world)

    ends = {"QUEUE": (RAN, RAN), "SKIP": (RAN, SKIPPED), "REPLACE": (REPLACED, RAN)}[overlap]
    assert (end_of(world, job, "12:00")[0], end_of(world, job, "12:01")[0]) == ends


def test_the_latest_run_replaces_all_waiting_ones(world: World) -> None:
    job = world.register(**MINUTELY, overlap="REPLACE", endAt="2026-05-24T12:09:00Z")
    for minute in range(10):
        world.tick_at(f"12:0{minute}")

    world.worker().work()

    assert ran(world, job) == ["12:09"]
    assert_all_accounted_for(world, job)


def test_the_last_run_before_a_pause_is_not_replaced(world: World) -> None:
    job = world.register(**MINUTELY, overlap="REPLACE")
    world.tick_at("12:00")
    world.at("12:00:30")
    world.pause(job)
    world.at("12:05")

    world.worker().work()

    assert ran(world, job) == ["12:00"]
    assert world.job(job.key).state is JobState.PAUSED


# The relevancy window at dispatch and at pickup


def test_the_window_at_dispatch_and_at_the_pickup(world: World) -> None:
    job = world.register(**MINUTELY, misfire=RUN_ALL | {"relevancyWindowSec": 120})
    world.at("12:05:30")
    world.new_watcher()
    for _ in range(10):
        world.tick()
        world.advance(seconds=1)
    assert world.queued == ["report 12:04", "report 12:05"], "earlier ones are outside the window"

    world.at("12:06:30")
    world.worker().work()

    assert ran(world, job) == ["12:05"]
    run = world.run(job, "12:04")
    assert (run.state, run.pool) == (RunState.SKIPPED, "default")
    assert run.reason == "picked up 150 s late; relevancyWindowSec is 120 s"
    settle(world)
    assert_all_accounted_for(world, job)


def test_a_run_skipped_at_its_pickup_is_counted_and_acknowledged(world: World) -> None:
    world.register(**MINUTELY, misfire={"relevancyWindowSec": 10})
    world.tick_at("12:00")
    world.at("12:00:20")

    handled = world.worker().work_one()

    assert (handled.skipped, handled.started) == (True, False)
    assert world.queued == []
    assert world.runner.calls == []


def fails(world: World) -> None:
    world.script(exit_code=1)
    world.worker().work_one()
    world.advance(seconds=300)
    world.tick()


def is_handed_back(world: World) -> None:
    world.script(lasts=timedelta(seconds=5))
    world.worker().work_one(stopping=stops_later())
    world.advance(seconds=300)


def loses_its_worker(world: World) -> None:
    lose_the_worker(world)
    world.advance(seconds=300)


def stops_later() -> Callable[[], bool]:
    asked = iter([False, True])
    return lambda: next(asked, True)


@pytest.mark.parametrize("first", [fails, is_handed_back, loses_its_worker])
@pytest.mark.parametrize("overlap", ["ALLOW", *EXCLUSIVE])
def test_a_run_that_has_begun_is_not_too_late_for_its_window(
    world: World, first: Callable[[World], None], overlap: str
) -> None:
    job = world.register(misfire={"relevancyWindowSec": 10}, overlap=overlap)
    world.tick_at("12:00")
    first(world)
    world.tick()

    world.worker("b").work()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_retry_needs_no_reads_for_the_pickup_decision(world: World) -> None:
    world.register(misfire={"relevancyWindowSec": 10}, overlap="SKIP")
    world.tick_at("12:00")
    fails(world)
    world.faults.calls.clear()

    world.worker().work_one()

    assert not {"runs.skip", "runs.between"} & {*world.faults.calls}


def test_the_last_occurrence_skipped_at_its_pickup_completes_the_job(world: World) -> None:
    job = world.register(
        type="ONCE", schedule="2026-05-24T12:00:00Z", misfire={"relevancyWindowSec": 10}
    )
    world.tick_at("12:00")
    world.at("12:00:20")

    world.worker().work()

    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)


@pytest.mark.parametrize("calls", range(8))
def test_a_worker_that_dies_anywhere_while_it_skips_loses_nothing(calls: int) -> None:
    world = World("11:59:30")
    world.tick()
    job = world.register(
        type="ONCE", schedule="2026-05-24T12:00:00Z", misfire={"relevancyWindowSec": 10}
    )
    world.tick_at("12:00")
    world.at("12:00:20")
    world.faults.kill_after(calls)
    try:
        world.worker().work()
    except Killed:
        world.faults.clear()
    world.faults.clear()

    settle(world)

    assert world.job(job.key).state is JobState.COMPLETED
    assert_all_accounted_for(world, job)


def test_a_run_that_waits_is_not_replaced_by_one_that_is_itself_skipped(world: World) -> None:
    job = world.register(overlap="REPLACE", misfire=SKIP)
    world.tick_at("12:00")  # 12:00 is sent; no tick and no worker until 13:30
    world.at("13:30")

    handled = world.worker("a").work_one()
    world.new_watcher()
    world.tick()

    assert handled.run is not None
    assert end_of(world, job, "12:00") == ("SUCCEEDED", "exit code 0")
    assert end_of(world, job, "13:00")[0] == "SKIPPED"


# A run that was cancelled before a worker took it says nothing about earlier runs


def cancel(world: World, job: Job, time: str) -> None:
    world.manage_runs.cancel(RunKey(job.key, run_id(job.uid, at(time))), None)


def test_a_cancelled_run_between_does_not_keep_the_newest_from_replacing(world: World) -> None:
    job = world.register(**MINUTELY, overlap="REPLACE", misfire=RUN_ALL)
    world.tick_at("12:00")
    running = claimed(world, job, "12:00")
    cancelled = Run(
        RunKey(job.key, run_id(job.uid, at("12:01"))), RunState.CANCELLED, finished_at=at("12:01")
    )

    decision = decide_overlap(job, at("12:02"), [cancelled, running])

    assert (decision.joins, decision.cancel) == (True, running)


def claimed(world: World, job: Job, time: str) -> Run:
    """The record of a run that a worker has just claimed."""
    return world.runs.claim(
        a_message(RunKey(job.key, run_id(job.uid, at(time)))),
        token="t",
        worker="a",
        pool="default",
        job_revision=1,
        now=world.now,
        lease_until=world.now + LEASE,
    ).run


def test_a_cancelled_run_between_does_not_hide_one_that_waits_for_its_retry(world: World) -> None:
    retry = {"initialDelayMs": 600_000}
    job = world.register(**MINUTELY, overlap="SKIP", retryPolicy=retry)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:01")
    cancel(world, job, "12:01")
    world.worker().work()

    world.tick_at("12:02")
    world.worker().work()

    assert end_of(world, job, "12:01")[0] == "CANCELLED"
    state, reason = end_of(world, job, "12:02")
    assert state == SKIPPED
    assert "20260524T120000000Z" in reason


def test_replace_stops_no_run_if_the_queue_rejects_the_next(world: World) -> None:
    job = world.register(**MINUTELY, overlap="REPLACE")
    world.tick_at("12:00")

    def next_is_not_taken() -> None:
        world.queue.refuses = lambda _: True
        world.tick_at("12:01")

    world.script(meanwhile=next_is_not_taken)
    world.worker().work_one()

    assert not world.run(job, "12:00").cancel_requested


def test_what_could_not_be_stopped_is_stopped_by_a_later_tick(world: World) -> None:
    world.register(**MINUTELY, overlap="REPLACE")
    world.tick_at("12:00")
    world.faults.refuse("runs.stop", times=2)

    world.script(meanwhile=lambda: world.tick_at("12:01"))
    world.worker().work_one()

    assert "12:01" in [f"{entry.at:%H:%M}" for entry in world.entries]
