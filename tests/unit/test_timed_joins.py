"""Jobs with a schedule and parents: a run needs its time to come, and its parents' runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.instants import from_ms
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import timed_runs
from nextfire.usecases.read_parents import read_parents
from tests.builders import at
from tests.fakes import Killed
from tests.unit.requested import run_now
from tests.unit.test_sequences import ONE_ATTEMPT
from tests.world import World

BEGINNING = "11:58:30"

HOURLY = "0 * * * *"


def cron(schedule: str, **edge: Any) -> dict[str, Any]:
    """A job with *schedule* after the job a."""
    return {"type": "CRON", "schedule": schedule, "after": [{"job": "a", **edge}]}


def there(world: World, job: Job, time: str) -> Run | None:
    return world.runs.get(RunKey(job.key, run_id(job.uid, at(time))))


def state(world: World, job: Job, time: str) -> RunState | None:
    run = there(world, job, time)
    return None if run is None else run.state


def go(world: World, *times: str) -> None:
    """Let watcher and worker work at *times*."""
    for time in times:
        world.tick_at(time)
        world.worker().work()


def upstream_of(world: World) -> Any:
    """What the last script was passed about the runs of its parents."""
    return json.loads(world.runner.calls[-1].upstream or "{}")


# same


def test_a_run_starts_when_its_time_has_come_and_its_parent_has_succeeded(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY))

    go(world, "12:00")

    run = there(world, b, "12:00")
    assert run is not None
    assert (run.state, run.dispatch) == (RunState.SUCCEEDED, 1)
    assert run.dispatch_reason == "ALL_SUCCEEDED: a SUCCEEDED"


def test_a_parent_that_ends_after_the_time_starts_the_run(world: World) -> None:
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 60_000})
    b = world.register("b", **cron(HOURLY))
    world.script(exit_code=1)

    go(world, "12:00")
    assert state(world, b, "12:00") is None
    go(world, "12:01:05")

    assert state(world, b, "12:00") is RunState.SUCCEEDED


def test_a_parent_that_ends_before_the_time_does_not_start_the_run(world: World) -> None:
    world.register("a")
    b = world.register("b", jitterSec=3_000, **cron(HOURLY))

    go(world, "12:00")
    assert state(world, b, "12:00") is None
    go(world, "12:50")

    assert state(world, b, "12:00") is RunState.SUCCEEDED


def test_a_run_whose_parent_failed_is_skipped_and_redriven_with_it(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **cron(HOURLY))
    c = world.register("c", type="AFTER", schedule=None, after=[{"job": "b"}])
    world.script(exit_code=1)

    go(world, "12:00")
    run = there(world, b, "12:00")
    assert run is not None
    assert (run.state, run.reason) == (RunState.SKIPPED, "trigger rule ALL_SUCCEEDED: a FAILED")
    assert state(world, c, "12:00") is RunState.SKIPPED

    world.advance(seconds=20)
    world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
    go(world, "12:01", "12:01:01")

    assert [state(world, job, "12:00") for job in (a, b, c)] == [RunState.SUCCEEDED] * 3


def test_a_dead_run_follows_its_parent_when_the_sequence_is_redriven(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", **ONE_ATTEMPT, **cron(HOURLY))
    world.script()
    world.script(exit_code=1)
    go(world, "12:00")
    assert [state(world, job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED, RunState.DEAD]
    # The parent is redriven too, although it succeeded: as after a cancel.
    world.runs.items[world.run(a, "12:00").key] = replace(
        world.run(a, "12:00"), state=RunState.CANCELLED
    )
    world.advance(seconds=20)

    key = world.run(a, "12:00").key
    world.sequences.redrive(key, "a", downstream=True, reason=None)
    go(world, "12:01", "12:01:01")

    assert [state(world, job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED] * 2


def test_a_skipped_run_whose_executor_was_overtaken_by_a_redrive_starts(world: World) -> None:
    a = world.register("a", **ONE_ATTEMPT)
    b = world.register("b", priority="LOW", **cron(HOURLY))
    world.script(exit_code=1)
    world.tick_at("12:00")
    world.worker().work_one()
    slow = world.worker("slow")
    message = slow.receive()
    assert message is not None

    def redrive() -> None:
        world.manage_runs.redrive(world.run(a, "12:00").key, "fixed")
        world.advance(seconds=1)
        world.tick()
        world.worker().work()

    world.faults.call_before_next("runs.skip", redrive)
    slow.handle(message)
    go(world, "12:01", "12:02")

    assert [state(world, job, "12:00") for job in (a, b)] == [RunState.SUCCEEDED] * 2


def test_a_join_that_ends_names_the_missing_parents(world: World) -> None:
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 600_000})
    b = world.register("b", joinTimeoutSec=60, **cron(HOURLY))
    world.script(exit_code=1)

    go(world, "12:00", "12:00:59", "12:01:05")

    run = there(world, b, "12:00")
    assert run is not None
    assert (run.state, run.reason) == (RunState.SKIPPED, "joinTimeoutSec is 60 s; missing: a")
    go(world, "12:10:30")
    assert there(world, b, "12:00") == run, "a parent that ends later does not start it"


def test_an_occurrence_of_the_parent_alone_costs_the_child_nothing(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron("0 13 * * *"))

    go(world, "12:00")

    assert state(world, b, "12:00") is None
    assert all(key.job.job_id != "b" for key, _ in world.joins.items)
    go(world, "13:00")
    assert state(world, b, "13:00") is RunState.SUCCEEDED


def test_a_run_on_request_does_not_wait(world: World) -> None:
    world.register("a", type="MANUAL", schedule=None)
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=60))

    asked = run_now(world, b)
    go(world, "11:59")

    assert world.runs.items[asked.key].state is RunState.SUCCEEDED


def test_an_occurrence_of_a_job_that_lost_its_schedule_is_accounted_for(world: World) -> None:
    world.register("a", retryPolicy={"maxAttempts": 2, "initialDelayMs": 600_000})
    b = world.register("b", joinTimeoutSec=60, **cron(HOURLY))
    world.script(exit_code=1)
    go(world, "12:00")

    world.change(b, type="AFTER", schedule=None)
    go(world, "12:01:05")

    run = there(world, b, "12:00")
    assert run is not None
    assert run.reason == "joinTimeoutSec is 60 s; missing: a"


def test_a_delay_counts_from_the_end_of_the_parent(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY, delaySec=90))

    go(world, "12:00", "12:01")
    assert state(world, b, "12:00") is None
    go(world, "12:01:31")

    assert state(world, b, "12:00") is RunState.SUCCEEDED


def test_the_time_of_a_deleted_job_is_recorded_as_cancelled(world: World) -> None:
    world.register("a")
    b = world.register("b", **cron(HOURLY))
    world.tick_at("12:00")
    world.delete(b)
    world.worker().work()

    run = there(world, b, "12:00")
    assert run is not None
    assert (run.state, run.dispatch) == (RunState.CANCELLED, 1)


# all


def test_a_run_waits_for_all_runs_of_its_parent_since_the_previous_occurrence(
    world: World,
) -> None:
    retry = {"maxAttempts": 2, "initialDelayMs": 3_000_000}
    world.register("a", schedule="*/20 * * * *", retryPolicy=retry)
    b = world.register("b", **cron(HOURLY, which="all"))

    go(world, "12:00")
    assert state(world, b, "12:00") is RunState.SUCCEEDED
    world.script(exit_code=1)
    go(world, "12:20", "12:40", "13:00")
    assert state(world, b, "13:00") is None
    go(world, "13:10:05")

    run = there(world, b, "13:00")
    assert run is not None
    assert run.state is RunState.SUCCEEDED
    upstream = upstream_of(world)
    assert [each["scheduledAt"] for each in upstream["a"]["runs"]] == [
        "2026-05-24T12:20:00Z",
        "2026-05-24T12:40:00Z",
        "2026-05-24T13:00:00Z",
    ]


def test_each_awaited_run_counts_as_a_parent_of_its_own(world: World) -> None:
    world.register("a", schedule="*/20 * * * *", **ONE_ATTEMPT)
    b = world.register("b", **cron(HOURLY, which="all"))
    go(world, "12:00")
    world.script(exit_code=1)

    go(world, "12:20", "12:40", "13:00")

    run = there(world, b, "13:00")
    assert run is not None
    assert run.state is RunState.SKIPPED
    assert run.reason == "trigger rule ALL_SUCCEEDED: a at 2026-05-24T12:20:00Z FAILED"


def late_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Job, list[int]]:
    """A job b whose time, 13:00, has come before any of the 60 runs of its parent has ended. The
    list grows with each read of all these runs.
    """
    late = {"target": {"handler": "a", "pool": "batch"}} | ONE_ATTEMPT
    world.register("a", schedule="* * * * *", **late)
    b = world.register("b", **cron(HOURLY, which="all"))
    go(world, "12:00")
    world.worker(pool="batch").work()
    go(world, *(f"12:{minute:02}" for minute in range(1, 60)), "13:00")
    reads: list[int] = []

    def read(*args: Any) -> Any:
        parents = read_parents(*args)
        reads.append(len(parents))
        return parents

    monkeypatch.setattr(timed_runs, "read_parents", read)
    return b, reads


def test_runs_that_catch_up_do_not_each_read_all_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, reads = late_runs(world, monkeypatch)

    world.worker(pool="batch").work()
    go(world, "13:00:01")

    assert state(world, b, "13:00") is RunState.SUCCEEDED
    assert len(reads) <= 10, "of 60 runs in a random order, ln 60 are expected"


def test_a_run_that_fails_while_others_are_left_decides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, _ = late_runs(world, monkeypatch)
    batch = world.worker(pool="batch")
    batch.work_one()

    world.script(exit_code=1)
    batch.work_one()

    run = there(world, b, "13:00")
    assert run is not None
    assert run.reason == "trigger rule ALL_SUCCEEDED: a at 2026-05-24T12:02:00Z FAILED"


def test_a_run_that_is_left_and_is_no_longer_awaited_is_not_waited_for(world: World) -> None:
    world.register("r", schedule="*/5 * * * *")
    rare = world.register("rare", schedule="0 0 1 1 *")
    fields: dict[str, Any] = {
        "type": "AFTER",
        "schedule": None,
        "after": [{"job": "r", "delaySec": 3_000}],
    }
    a = world.register("a", **fields)
    b = world.register("b", **cron("20 * * * *", which="all"), triggerRule="ALL_DONE")
    go(world, "12:00", "12:05", "12:10", "12:15", "12:20")

    world.change(a, after=[{"job": rare.key.job_id}])
    go(world, "12:50:01", "12:50:02")

    assert state(world, b, "12:20") is RunState.SUCCEEDED


def test_a_run_that_is_left_and_is_then_skipped_by_a_watcher_is_noticed(world: World) -> None:
    late: dict[str, Any] = {"target": {"handler": "a", "pool": "batch"}}
    a = world.register("a", schedule="*/20 * * * *", **late)
    b = world.register("b", **cron("20 * * * *", which="all"), triggerRule="ALL_DONE")
    go(world, "12:00", "12:20")
    (marks,) = world.joins.items.values()
    (left,) = (mark for mark in marks if mark.startswith("@left"))
    ms = int(left.removesuffix(":-").split("/")[-1])

    skipped = RunKey(a.key, run_id(a.uid, from_ms(ms)))
    world.runs.skip(Run.skipped(skipped, "misfire policy", world.now))
    batch = world.worker(pool="batch")
    messages = [delivery for _ in range(2) if (delivery := batch.receive()) is not None]
    for each in messages:
        if skipped.run_id not in each.body:
            batch.handle(each)
    go(world, "12:20:01")

    assert state(world, b, "12:20") is RunState.SUCCEEDED


# latest


def test_latest_takes_a_success_that_is_recent_enough(world: World) -> None:
    world.register("a", schedule="30 * * * *")
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=3_000))

    go(world, "12:00")
    assert state(world, b, "12:00") is None, "waits for the next success"
    go(world, "12:30")
    assert state(world, b, "12:00") is RunState.SUCCEEDED
    go(world, "13:00")

    assert state(world, b, "13:00") is RunState.SUCCEEDED
    assert upstream_of(world)["a"]["state"] == "SUCCEEDED"


def test_one_success_starts_all_runs_that_wait_for_it(world: World) -> None:
    a = world.register("a", type="MANUAL", schedule=None)
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=60))
    go(world, "12:00", "13:00", "14:00")
    times = ("12:00", "13:00", "14:00")
    assert [state(world, b, time) for time in times] == [None] * 3

    run_now(world, a)
    go(world, "14:00:05")

    assert [state(world, b, time) for time in times] == [RunState.SUCCEEDED] * 3


def test_a_success_is_not_used_up(world: World) -> None:
    a = world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    latest: dict[str, Any] = {"which": "latest", "withinSec": 3_600}
    b = world.register("b", **cron("0,30 * * * *", **latest))
    c = world.register("c", **cron("0,30 * * * *", **latest) | {"after": [{"job": "b", **latest}]})
    joined = [{"job": each, **latest} for each in "ab"]
    d = world.register("d", **cron("30 * * * *") | {"after": joined})

    go(world, "12:00", "12:30", "13:00", "13:30")

    times = ("12:00", "12:30", "13:00", "13:30")
    assert world.run(a, "12:00").finished_at == at("12:00")
    assert [state(world, b, time) for time in times] == [RunState.SUCCEEDED] * 3 + [None]
    assert [state(world, c, time) for time in times] == [RunState.SUCCEEDED] * 4
    assert [state(world, d, time) for time in ("12:30", "13:30")] == [RunState.SUCCEEDED, None]


# Crashes


@pytest.mark.parametrize("which", [{}, {"which": "all"}, {"which": "latest", "withinSec": 60}])
def test_an_executor_that_dies_anywhere_loses_nothing(which: dict[str, Any]) -> None:
    died = True
    calls = 0
    while died:
        world = World("11:58:30")
        world.tick()
        world.register("a")
        b = world.register("b", **cron(HOURLY, **which))
        world.tick_at("12:00")
        world.faults.kill_after(calls)
        try:
            world.worker("x").work()
            died = False
        except Killed:
            calls += 1
        world.faults.clear()
        for _ in range(4):
            world.advance(seconds=61)
            world.tick()
            world.worker("y").work()
        run = there(world, b, "12:00")
        assert run is not None, calls
        assert run.state is RunState.SUCCEEDED, (calls, run.reason)
    assert calls > 10
