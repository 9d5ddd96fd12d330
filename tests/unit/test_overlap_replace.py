"""REPLACE: the latest run replaces the others, whatever dies or does not answer meanwhile."""

from __future__ import annotations

from itertools import count

import pytest

from nextfire.domain.decisions import decide_overlap
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.accounting import assert_all_accounted_for, ran, settle
from tests.builders import MINUTELY, RUN_ALL, SKIP, a_message, at, claim_run
from tests.fakes import InlineExecutor
from tests.unit.overlapping import EXCLUSIVE, RAN, REPLACED, SKIPPED, end_of, lose_the_worker
from tests.world import World

BEGINNING = "11:59:30"

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
    died = world.dies(calls, world.tick)
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
    world.manage_runs.cancel(job.run_key(at(time)), None)


def test_a_cancelled_run_between_does_not_keep_the_newest_from_replacing(world: World) -> None:
    job = world.register(**MINUTELY, overlap="REPLACE", misfire=RUN_ALL)
    world.tick_at("12:00")
    running = claimed(world, job, "12:00")
    cancelled = Run(job.run_key(at("12:01")), RunState.CANCELLED, finished_at=at("12:01"))

    decision = decide_overlap(job, at("12:02"), [cancelled, running])

    assert (decision.joins, decision.cancel) == (True, running)


def claimed(world: World, job: Job, time: str) -> Run:
    """The record of a run that a worker has just claimed."""
    return claim_run(world.runs, a_message(job.run_key(at(time))), world.now, worker="a").run


def test_a_cancelled_run_between_does_not_hide_one_that_waits_for_its_retry(world: World) -> None:
    retry = {"initialDelayMs": 600_000}
    job = world.register(**MINUTELY, overlap="SKIP", retryPolicy=retry)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.worker().work_one()
    world.tick_at("12:01")
    cancel(world, job, "12:01")
    world.worker().work()

    world.tick_and_work("12:02")

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


def test_occurrences_that_the_misfire_policy_skips_replace_nothing(world: World) -> None:
    hourly = {"type": "CRON", "schedule": "0 * * * *"}
    job = world.register(**hourly, overlap="REPLACE", misfire=SKIP)
    world.tick_at("12:00")
    claim_run(world.runs, a_message(job.run_key(at("12:00"))), world.now)

    world.tick_at("13:30")

    assert world.run(job, "13:00").state is RunState.SKIPPED
    assert not world.run(job, "12:00").cancel_requested
