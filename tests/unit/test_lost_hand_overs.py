"""The auditor hands over again what a dead executor did not, if its message was purged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import pytest

from nextfire.domain.attempt import Attempt
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from nextfire.usecases import lost_hand_overs
from nextfire.usecases.lost_hand_overs import _is_handed_over
from tests.builders import a_job, at, run_key
from tests.fakes import Killed
from tests.unit.auditing import audit, purge
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World

BEGINNING = "11:58:30"

ONCE: dict[str, Any] = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z"}


def work(world: World) -> None:
    for _ in range(3):
        world.tick()
        world.worker().work()
        world.advance(seconds=1)


def lose_hand_over(world: World, call: str, at: str = "12:00") -> None:
    """An executor dies instead of *call* of a hand-over, and its message is purged."""
    world.tick_at(at)
    world.faults.call_before_next(call, _die)
    with pytest.raises(Killed):
        world.worker().work()
    world.faults.clear()
    purge(world)


def _die() -> None:
    raise Killed


def later(world: World, *, days: float) -> Any:
    world.advance(days=days)
    world.tick()
    return audit(world)


def test_a_lost_hand_over_is_repeated_a_day_later(world: World) -> None:
    world.register("a", **ONCE)
    b = world.register("b", **after("a"))
    c = world.register("c", **after("b"))
    lose_hand_over(world, "queue.send")

    assert later(world, days=0.9).resent == 0, "it may be in a queue"
    report = later(world, days=0.2)
    work(world)

    assert report.resent == 1
    assert report.notes == ["acme/b: 1 runs of its parents were not handed over; sent again"]
    assert [world.state(job, "12:00") for job in (b, c)] == [RunState.SUCCEEDED] * 2
    assert later(world, days=0.5).repaired == 0


@pytest.mark.parametrize("lost", ["hand-over", "end"])
def test_a_lost_join_is_repeated_and_ends(world: World, lost: str) -> None:
    world.register("a", **ONCE)
    never = world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", never.key.job_id, joinTimeoutSec=600))
    if lost == "hand-over":
        lose_hand_over(world, "joins.read")
    else:
        work(world)
        world.tick_and_work("12:00")
        world.tick_at("12:10:10")
        assert world.queued
        purge(world)

    assert later(world, days=1.2).resent == 1
    work(world)
    world.advance(minutes=15)
    work(world)

    run = world.run(d, "12:00")
    assert run.reason == "joinTimeoutSec is 600 s; missing: x"


def test_what_was_skipped_down_the_chain_is_repeated(world: World) -> None:
    world.register("a", **ONCE, **ONE_ATTEMPT)
    b = world.register("b", **after("a"))
    c = world.register("c", **after("b"))
    world.script(exit_code=1)
    world.tick_at("12:00")
    world.faults.refuse("runs.skip")
    world.worker().work()
    world.runs.items.pop(c.run_key(at("12:00")), None)
    purge(world)

    later(world, days=1.2)
    work(world)

    assert [world.state(job, "12:00") for job in (b, c)] == [RunState.SKIPPED] * 2


@pytest.mark.parametrize(("change", "days"), [("child", 1.2), ("edge", 2.2)])
def test_a_run_that_ended_before_the_edge_existed_is_not_handed_over(
    world: World, change: str, days: float
) -> None:
    world.register("a", **ONCE)
    x = world.register("x", type="MANUAL", schedule=None)
    b = world.register("b", **after("x")) if change == "edge" else None
    world.tick_and_work("12:00")
    world.advance(seconds=10)
    if b is None:
        b = world.register("b", **after("a"))
    else:
        world.change(b, **after("a", x.key.job_id))

    assert later(world, days=days).resent == 0
    work(world)
    assert world.state(b, "12:00") is None


def test_what_a_watcher_skipped_is_not_handed_over(world: World) -> None:
    a = world.register("a", **ONCE, misfire={"relevancyWindowSec": 60})
    b = world.register("b", **after("a"))
    world.tick_at("12:30")
    work(world)
    assert (world.state(a, "12:00"), world.run(a, "12:00").pool) == (RunState.SKIPPED, None)

    assert later(world, days=1.2).resent == 0
    assert world.state(b, "12:00") is None


def test_a_run_of_a_parent_that_was_created_again_is_not_handed_over(world: World) -> None:
    """It ended after its job was deleted."""
    former = world.register("a", **ONCE)
    world.tick_at("12:00")

    def create_again() -> None:
        world.delete(former)
        world.register("a", type="MANUAL", schedule=None)
        world.register("b", **after("a"))

    world.faults.call_before_next("runs.advance", create_again)
    world.worker().work()
    assert world.state(former, "12:00") is RunState.SUCCEEDED

    assert later(world, days=1.2).resent == 0


def test_the_record_of_a_former_job_with_its_id_does_not_count(world: World) -> None:
    a = world.register("a", **ONCE, **ONE_ATTEMPT)
    former = world.register("b", **after("a"))
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    work(world)
    assert world.state(former, "12:00") is RunState.SKIPPED
    world.delete(former)
    b = world.register("b", **after("a"))
    world.script(exit_code=0)
    world.advance(seconds=5)
    world.manage_runs.redrive(world.run(a, "12:00").key, None)
    lose_hand_over(world, "queue.send", at="12:00:10")
    assert world.state(a, "12:00") is RunState.SUCCEEDED

    assert later(world, days=1.2).resent == 1
    work(world)
    assert world.state(b, "12:00") is RunState.SUCCEEDED


def test_a_parent_that_does_not_decode_does_not_stop_the_audit(world: World) -> None:
    a = world.register("a", **ONCE)
    world.register("b", **after("a"))
    lose_hand_over(world, "queue.send")
    world.jobs.spoil(a.key)

    assert later(world, days=1.1).quarantined == 1
    world.jobs.repair(a.key)
    assert later(world, days=0.1).resent == 1


def test_a_run_that_waits_is_not_handed_over_again(world: World) -> None:
    """For example for a place, for days: it has an entry and no record."""
    a = world.register("a", **ONCE)
    b = world.register("b", **after("a"))
    lose_hand_over(world, "queue.send")
    world.advance(days=1.5)
    key = b.run_key(at("12:00"))
    world.tick()
    waits = b.dispatch_entry(key, world.now + timedelta(seconds=30), 1)
    world.due.put([waits], world.now)

    report = audit(world)

    assert report.resent == 0
    assert world.state(a, "12:00") is RunState.SUCCEEDED


def minutely(world: World, *parents: str) -> Job:
    """A child of *parents*, which have run ten times each."""
    for name in parents:
        world.register(name, schedule="* * * * *", maxRuns=10)
    child = world.register("child", **after(*parents))
    for minute in range(10):
        world.tick_and_work(f"12:{minute:02d}")
        work(world)
    return child


def test_runs_beyond_the_records_that_are_read_are_not_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sequence that runs each second: a run on request is one record more of the child."""
    child = minutely(world, "a")
    world.request_runs.run_now(
        child.key, payload=None, reason=None, request="r", asked_at=at("12:02:30")
    )
    work(world)
    monkeypatch.setattr(lost_hand_overs, "RECORDS_AT_MOST", 5)

    assert later(world, days=1.2).resent == 0


def test_the_runs_of_many_parents_are_read_up_to_a_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the audit of a join of many parents might never end."""
    child = minutely(world, "a", "b", "c")
    world.advance(days=2.5)
    read: list[Run] = []
    between = world.runs.between

    def counted(*given: Any, **options: Any) -> Iterator[Run]:
        for run in between(*given, **options):
            read.append(run)
            yield run

    monkeypatch.setattr(world.runs, "between", counted)
    since = world.now - timedelta(days=2)

    def number_read() -> int:
        read.clear()
        lost = lost_hand_overs.lost_hand_overs(world.jobs, world.runs, child, since, world.now)
        assert [*lost] == []
        return sum(run.key.job != child.key for run in read)

    assert number_read() == 30
    monkeypatch.setattr(lost_hand_overs, "PARENT_RUNS_AT_MOST", 15)
    assert number_read() == 15


class WatchedKey(RunKey):
    """Can be in a WeakSet."""


def test_a_visit_keeps_no_records(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads up to 100,000 of them, and 16 visits at the same time share 512 MiB."""
    world.register("a")
    child = world.register("b", **after("a"))
    kept = WeakSet[RunKey]()
    numbers = list[int]()

    def each_second(job: JobKey, *_: Any, **__: Any) -> Iterator[Run]:
        for second in range(100 if job == child.key else 0):
            key = WatchedKey(job, child.run_key(world.now + timedelta(seconds=second)).run_id)
            kept.add(key)
            numbers.append(len(kept))
            yield Run(key, RunState.SUCCEEDED)

    monkeypatch.setattr(world.runs, "between", each_second)
    since, now = world.now, world.now + timedelta(days=2)

    assert [*lost_hand_overs.lost_hand_overs(world.jobs, world.runs, child, since, now)] == []
    assert len(numbers) == 100
    assert max(numbers) < 5


SUCCESS = replace(Run(run_key(), RunState.SUCCEEDED), attempts=(Attempt(1, "w", at("12:00")),))
SKIPPED = Run(run_key(), RunState.SKIPPED, pool="default")


@pytest.mark.parametrize(
    ("run", "is_handed_over"),
    [
        pytest.param(SUCCESS, True, id="ended"),
        pytest.param(replace(SUCCESS, state=RunState.RUNNING), False, id="runs"),
        pytest.param(SKIPPED, True, id="skipped by an executor"),
        pytest.param(replace(SKIPPED, pool=None), False, id="skipped by a watcher"),
        pytest.param(replace(SKIPPED, covered=2), False, id="a range"),
        pytest.param(replace(SKIPPED, request="r"), False, id="skipped on request"),
        pytest.param(replace(SKIPPED, state=RunState.CANCELLED), False, id="never started"),
    ],
)
def test_what_an_executor_had_to_hand_over(run: Run, is_handed_over: Any) -> None:
    assert _is_handed_over(a_job(), run) is is_handed_over
