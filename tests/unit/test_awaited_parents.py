"""Which runs of its parents a run waits for, and what it takes as their success."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nextfire.domain.instants import from_ms
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import timed_runs
from nextfire.usecases.read_parents import read_parents
from tests.builders import at
from tests.unit.requested import run_now
from tests.unit.sequencing import ONE_ATTEMPT
from tests.unit.timed import HOURLY, cron
from tests.world import World

BEGINNING = "11:58:30"


def upstream_of(world: World) -> Any:
    """What the last script was passed about the runs of its parents."""
    return json.loads(world.runner.calls[-1].upstream or "{}")


# all


def test_a_run_waits_for_all_runs_of_its_parent_since_the_previous_occurrence(
    world: World,
) -> None:
    retry = {"maxAttempts": 2, "initialDelayMs": 3_000_000}
    world.register("a", schedule="*/20 * * * *", retryPolicy=retry)
    b = world.register("b", **cron(HOURLY, which="all"))

    world.tick_and_work("12:00")
    assert world.state(b, "12:00") is RunState.SUCCEEDED
    world.script(exit_code=1)
    world.tick_and_work("12:20", "12:40", "13:00")
    assert world.state(b, "13:00") is None
    world.tick_and_work("13:10:05")

    run = world.run(b, "13:00")
    assert run.state is RunState.SUCCEEDED
    upstream = upstream_of(world)
    assert [each["scheduledAt"] for each in upstream["a"]["runs"]] == [
        "2026-05-24T12:20:00Z",
        "2026-05-24T12:40:00Z",
        "2026-05-24T13:00:00Z",
    ]


def test_each_awaited_run_counts_as_a_separate_parent(world: World) -> None:
    world.register("a", schedule="*/20 * * * *", **ONE_ATTEMPT)
    b = world.register("b", **cron(HOURLY, which="all"))
    world.tick_and_work("12:00")
    world.script(exit_code=1)

    world.tick_and_work("12:20", "12:40", "13:00")

    run = world.run(b, "13:00")
    assert run.state is RunState.SKIPPED
    assert run.reason == "trigger rule ALL_SUCCEEDED: a at 2026-05-24T12:20:00Z FAILED"


def late_runs(
    world: World, monkeypatch: pytest.MonkeyPatch, **fields: Any
) -> tuple[Job, list[int]]:
    """A job b, changed once, whose time, 13:00, has come before any of the 60 runs of its parent
    has ended. The list grows with each read of all these runs.
    """
    late = {"target": {"handler": "a", "pool": "batch"}} | ONE_ATTEMPT | fields
    world.register("a", schedule="* * * * *", **late)
    b = world.change(world.register("b", **cron(HOURLY, which="all")), labels={"team": "data"})
    world.tick_and_work("12:00")
    world.worker(pool="batch").work()
    world.tick_and_work(*(f"12:{minute:02}" for minute in range(1, 60)), "13:00")
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
    world.tick_and_work("13:00:01")

    assert world.state(b, "13:00") is RunState.SUCCEEDED
    assert len(reads) <= 10, "of 60 runs in a random order, ln 60 are expected"


def test_a_run_that_is_left_and_waits_for_its_retry_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    retry = {"maxAttempts": 2, "initialDelayMs": 60_000}
    b, reads = late_runs(world, monkeypatch, retryPolicy=retry)
    for _ in range(60):
        world.script(exit_code=1)
    world.worker(pool="batch").work()

    world.tick_at("13:02")
    world.worker(pool="batch").work()
    world.tick_and_work("13:02:01")

    assert world.state(b, "13:00") is RunState.SUCCEEDED
    assert len(reads) <= 10


def test_a_run_that_fails_while_others_are_left_decides(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    b, _ = late_runs(world, monkeypatch)
    batch = world.worker(pool="batch")
    batch.work_one()

    world.script(exit_code=1)
    batch.work_one()

    run = world.run(b, "13:00")
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
    world.tick_and_work("12:00", "12:05", "12:10", "12:15", "12:20")

    world.change(a, after=[{"job": rare.key.job_id}])
    world.tick_and_work("12:50:01", "12:50:02")

    assert world.state(b, "12:20") is RunState.SUCCEEDED


def test_a_run_that_is_left_and_is_then_skipped_by_a_watcher_is_noticed(world: World) -> None:
    late: dict[str, Any] = {"target": {"handler": "a", "pool": "batch"}}
    a = world.register("a", schedule="*/20 * * * *", **late)
    b = world.register("b", **cron("20 * * * *", which="all"), triggerRule="ALL_DONE")
    world.tick_and_work("12:00", "12:20")
    (marks,) = world.joins.items.values()
    (left,) = (mark for mark in marks if mark.startswith("@left"))
    ms = int(left.removesuffix(":-").split("/")[-1])

    skipped = a.run_key(from_ms(ms))
    world.runs.skip(Run.skipped(skipped, "misfire policy", world.now))
    batch = world.worker(pool="batch")
    messages = [delivery for _ in range(2) if (delivery := batch.receive()) is not None]
    for each in messages:
        if skipped.run_id not in each.body:
            batch.handle(each)
    world.tick_and_work("12:20:01")

    assert world.state(b, "12:20") is RunState.SUCCEEDED


# latest


def test_latest_takes_a_success_that_is_recent_enough(world: World) -> None:
    world.register("a", schedule="30 * * * *")
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=3_000))

    world.tick_and_work("12:00")
    assert world.state(b, "12:00") is None, "waits for the next success"
    world.tick_and_work("12:30")
    assert world.state(b, "12:00") is RunState.SUCCEEDED
    world.tick_and_work("13:00")

    assert world.state(b, "13:00") is RunState.SUCCEEDED
    assert upstream_of(world)["a"]["state"] == "SUCCEEDED"


def test_one_success_starts_all_runs_that_wait_for_it(world: World) -> None:
    a = world.register("a", type="MANUAL", schedule=None)
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=60))
    world.tick_and_work("12:00", "13:00", "14:00")
    times = ("12:00", "13:00", "14:00")
    assert [world.state(b, time) for time in times] == [None] * 3

    run_now(world, a)
    world.tick_and_work("14:00:05")

    assert [world.state(b, time) for time in times] == [RunState.SUCCEEDED] * 3


def test_a_failure_of_the_latest_parent_reads_no_joins(world: World) -> None:
    a = world.register("a", type="MANUAL", schedule=None, **ONE_ATTEMPT)
    b = world.register("b", **cron(HOURLY, which="latest", withinSec=60))
    world.tick_and_work("12:00")
    run_now(world, a)
    world.script(exit_code=1)
    world.tick_at("12:30")
    world.faults.calls.clear()

    world.worker().work()

    assert "joins.read" not in world.faults.calls
    assert world.state(b, "12:00") is None


def test_a_success_does_not_start_runs_that_have_started(world: World) -> None:
    """One of them waits for its retry."""
    a = world.register("a", type="MANUAL", schedule=None)
    retry = {"maxAttempts": 2, "initialDelayMs": 3_000_000}
    b = world.register("b", retryPolicy=retry, **cron(HOURLY, which="latest", withinSec=60))
    run_now(world, a)
    world.tick_and_work("11:59:30")
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert world.state(b, "12:00") is RunState.PENDING

    run_now(world, a, "again")
    world.tick_at("12:10")
    world.faults.calls.clear()
    world.worker().work()

    assert world.run(b, "12:00").attempt == 1
    assert "joins.read" not in world.faults.calls


def test_a_success_starts_a_run_whose_occurrence_a_former_job_had_skipped(world: World) -> None:
    a = world.register("a", type="MANUAL", schedule=None)
    latest = cron(HOURLY, which="latest", withinSec=60)
    former = world.register("b", **latest)
    world.skips.skip_next(former.key, "a holiday")
    world.delete(former)
    world.advance(seconds=5)
    b = world.register("b", **latest)
    world.tick_and_work("12:00")

    run_now(world, a)
    world.tick_and_work("12:30")

    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_a_success_is_not_used_up(world: World) -> None:
    a = world.register("a", type="ONCE", schedule="2026-05-24T12:00:00Z")
    latest: dict[str, Any] = {"which": "latest", "withinSec": 3_600}
    b = world.register("b", **cron("0,30 * * * *", **latest))
    c = world.register("c", **cron("0,30 * * * *", **latest) | {"after": [{"job": "b", **latest}]})
    joined = [{"job": each, **latest} for each in "ab"]
    d = world.register("d", **cron("30 * * * *") | {"after": joined})

    world.tick_and_work("12:00", "12:30", "13:00", "13:30")

    times = ("12:00", "12:30", "13:00", "13:30")
    assert world.run(a, "12:00").finished_at == at("12:00")
    assert [world.state(b, time) for time in times] == [RunState.SUCCEEDED] * 3 + [None]
    assert [world.state(c, time) for time in times] == [RunState.SUCCEEDED] * 4
    assert [world.state(d, time) for time in ("12:30", "13:30")] == [RunState.SUCCEEDED, None]
