"""A backfill loses nothing and begins nothing twice, whatever dies, fails or is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.backfill import AT_ONCE
from nextfire.domain.due import BackfillEntry, DispatchEntry
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases.manage_backfills import BackfillRange
from tests.accounting import settle
from tests.builders import MINUTELY, at
from tests.crons import LONG
from tests.unit.backfilling import backfilled, begin, outstanding
from tests.unit.calling import HTTP, Calls
from tests.world import World

BEGINNING = "11:59:30"


def test_what_has_been_begun_leaves_no_entry(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "11:00", "11:35")
    while len(backfilled(world, job)) <= AT_ONCE:
        world.advance_and_work(seconds=1)

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


def test_it_continues_when_runs_die(world: World) -> None:
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
        world.advance_and_work(seconds=30)
    settle(world)
    assert sum(sent.endswith(" #2") for sent in world.sent) == AT_ONCE
    assert [r.state for r in backfilled(world, job)] == [RunState.SUCCEEDED] * 12
    assert world.job(job.key).backfill is None


def test_one_whose_message_is_lost_again_is_sent_again(world: World) -> None:
    job = world.register(**MINUTELY)
    begin(world, job, "09:00", "09:02")
    for minutes in (0, 16, 22):
        world.advance(minutes=minutes)
        world.tick()
        world.advance(seconds=6)
        world.tick()
        world.queue.queues["default"].purge()
    world.advance(minutes=24)
    world.tick()
    world.advance(seconds=6)
    settle(world)

    assert [r.state for r in backfilled(world, job)] == [RunState.SUCCEEDED] * 2


@pytest.mark.parametrize("hours", [6, 24])
def test_one_that_waits_in_the_due_table_is_sent_again_a_few_times_only(
    world: World, hours: int
) -> None:
    """Its destination is paused. Each time that it is sent again adds a dispatch that waits."""
    calls = Calls()
    world.call_targets[TargetKind.HTTP] = calls
    job = world.register(target=HTTP, schedule="0 9 * * *")
    begin(world, job, "08:00", "10:00")
    since = world.now
    for _ in range(hours * 60 // 4):
        calls.hold = Hold(world.now + timedelta(minutes=20), "paused", since=since)
        world.advance_and_work(minutes=4)

    waiting = [each for each in world.entries if isinstance(each, DispatchEntry)]
    assert len(waiting) < 10


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
    first = job.run_key(at("11:00"))
    world.runs.spoil(first)
    world.queue.queues["default"].purge()
    for _ in range(40):
        world.advance_and_work(seconds=30)
    assert world.job(job.key).backfill is None


def test_a_watcher_that_dies_anywhere_loses_none() -> None:
    """Without NEXTFIRE_LONG, one call in three is the last."""
    for calls in range(0, 300, 1 if LONG else 3):
        world = World("11:59:30")
        world.tick()
        job = world.register(**MINUTELY)
        begin(world, job, "11:00", "11:12")

        def work(world: World = world) -> None:
            for _ in range(6):
                world.tick()
                world.advance(seconds=6)
                world.worker().work()

        over = not world.dies(calls, work)
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
