"""Watchers that die, fail or meet while they catch up lose nothing and repeat nothing."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from itertools import count
from typing import Any
from zlib import crc32

import pytest

from tests.accounting import assert_all_accounted_for, ran, settle
from tests.builders import MINUTELY, RUN_LATEST, SKIP, at
from tests.crons import LONG
from tests.fakes import InlineExecutor, LateExecutor
from tests.unit.misfires import JITTERED, POLICIES, outage, tick_through_faults
from tests.world import World

BEGINNING = "11:59:30"

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

    def catch_up() -> None:
        for _ in range(4):
            world.tick()
            world.advance(seconds=1)

    died = world.dies(calls, catch_up)
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
    """Without NEXTFIRE_LONG, one call in seven is the last; which ones depends on the case."""
    fields = MINUTELY | {"overlap": overlap, "maxRuns": 8}
    case = f"{type(executor).__name__} {misfire['policy']} {overlap}"
    first, step = (0, 1) if LONG else (crc32(case.encode()) % 7, 7)

    calls = next(n for n in count(first, step) if not dies_after(n, executor, misfire, fields))

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
    world.tick_and_work("12:00:00")
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
