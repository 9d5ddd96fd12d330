"""Runs that were held back by a quota or a full queue do not count as late."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.due import FireEntry
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.report import Dispatched, TickReport
from tests.builders import MINUTELY, RUN_ALL, run_key
from tests.unit.limited import ONCE, a_world
from tests.world import World

# Lateness and held-back runs


def dispatched(report: TickReport) -> list[tuple[str, bool, timedelta]]:
    return [(d.run.job.job_id, d.held_back, d.lateness) for d in report.dispatched]


def test_held_back_runs_do_not_count_as_late() -> None:
    world = a_world(runsPerMinute=1)
    world.register("a", **ONCE)
    world.register("b", **ONCE)

    assert dispatched(world.tick_at("12:00")) == [("a", False, timedelta())]
    world.new_watcher()
    assert dispatched(world.tick_at("12:01")) == [("b", True, timedelta(minutes=1))]


@pytest.mark.parametrize("again_at", ["12:00:03", "12:01:10"])
def test_what_waited_for_room_is_held_back_whichever_watcher_sends_it(again_at: str) -> None:
    world = World("11:59:30")
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    world.register("a", **ONCE)
    world.register("b", **ONCE)
    world.tick_and_work("12:00")
    world.new_watcher()

    (sent,) = world.tick_at(again_at).dispatched

    assert sent.held_back


def test_what_waited_for_its_turn_is_held_back_and_what_comes_after_it_too() -> None:
    world = World("11:59:30")
    world.shares = Shares(backlogs={"default": 1})
    world.new_watcher()
    world.register("blocker", **ONCE)
    world.register("job", misfire=RUN_ALL, **MINUTELY)
    world.tick_at("12:00")
    world.advance(minutes=5)
    world.tick()
    world.shares = Shares()
    world.new_watcher()
    world.advance(seconds=1)

    sent = world.tick().dispatched
    for _ in range(9):
        world.advance(seconds=1)
        sent += world.tick().dispatched
    next_one = world.tick_at("12:06").dispatched

    assert [d.held_back for d in sent] == [True] * 6
    assert [(d.held_back, d.lateness) for d in next_one] == [(False, timedelta())]


def test_what_an_outage_makes_late_is_late() -> None:
    world = a_world()
    world.register("job", **ONCE)

    (sent,) = world.tick_at("12:20").dispatched

    assert (sent.held_back, sent.lateness) == (False, timedelta(minutes=20))


def test_an_entry_is_the_same_whether_it_was_held_or_not() -> None:
    world = World("11:59:30")
    job = world.register("job", **ONCE)
    (entry,) = world.entries
    assert isinstance(entry, FireEntry)
    held = FireEntry(job.key, job.uid, entry.at, entry.version, held=True)

    assert held == entry
    assert len({held, entry}) == 1


def test_dispatched_is_not_held_back_unless_that_is_said() -> None:
    assert not Dispatched(run_key(), timedelta(), "due").held_back
