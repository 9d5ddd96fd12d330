"""Redrives of runs that were cancelled or skipped after they had waited: each wait has a dispatch,
and the queue drops a message whose dispatch was sent in the last 5 minutes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.due import DispatchEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import SIGNALS, unsent_dispatch
from nextfire.domain.job import Job
from nextfire.domain.message import HAND_OVER_DISPATCH, TIME_DISPATCH
from nextfire.domain.ports.targets import Hold
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases.timed_runs import JOIN_END_DISPATCH
from tests.builders import at
from tests.unit.calling import HTTP, Calls, dispatched, key
from tests.unit.limited import ONCE, a_world
from tests.unit.requested import MANUAL, run_now, stored
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World


@pytest.fixture
def calls() -> Calls:
    return Calls(hold=Hold(at("12:01"), "the endpoint has a limit"))


@pytest.fixture
def world(calls: Calls) -> World:
    world = World("11:59")
    world.call_targets[TargetKind.HTTP] = calls
    return world


def waiting(world: World, calls: Calls, *instants: str, **fields: Any) -> Job:
    """A job whose run of 12:00 is dispatched at each of *instants*, and waits again; last not."""
    job = dispatched(world, **fields, **ONCE)
    assert calls.hold is not None
    for instant in instants:
        calls.hold = replace(calls.hold, until=at(instant))
        world.worker().work_one()
        world.tick_at(instant)
    calls.hold = None
    return job


def redrive(world: World, job: Job) -> RunState:
    world.at("12:02:20")
    world.sequences.redrive(key(job), "report", downstream=False, reason=None)
    world.tick()
    world.worker().work()
    return world.run(job, "12:00").state


def test_a_run_that_was_cancelled_while_it_waited_starts_again(world: World, calls: Calls) -> None:
    job = waiting(world, calls, "12:00:30", "12:01", "12:01:30")
    world.manage_runs.cancel(key(job), None)
    assert world.worker().work_one().reason == "has ended CANCELLED"

    assert redrive(world, job) is RunState.SUCCEEDED


def test_a_run_that_was_skipped_after_it_waited_starts_again(world: World, calls: Calls) -> None:
    window = {"misfire": {"relevancyWindowSec": 60}}
    job = waiting(world, calls, "12:00:30", "12:00:50", "12:01:20", **window)
    assert world.worker().work_one().skipped

    assert redrive(world, job) is RunState.SUCCEEDED


def test_a_dead_run_whose_job_did_not_decode_starts_again() -> None:
    """Its message waited in the due table, each time with the next dispatch."""
    world = a_world(concurrentRuns=1)
    job = world.register(**ONE_ATTEMPT, **ONCE)
    world.tick_at("12:00")
    world.script(exit_code=1)
    world.faults.refuse("events.put", 100)
    with pytest.raises(UnavailableError):
        world.worker().work_one()
    world.faults.clear()
    world.jobs.spoil(job.key)
    world.tick_and_work("12:02")
    world.tick_and_work("12:03:01")
    world.jobs.repair(job.key)
    world.tick_and_work("12:04:02")
    assert [entry for entry in world.entries if isinstance(entry, DispatchEntry)] == []

    world.manage_runs.redrive(key(job), None)
    world.tick()
    world.worker().work()

    assert world.run(job, "12:00").state is RunState.SUCCEEDED


def test_a_run_whose_join_ended_while_it_waited_starts_again(world: World, calls: Calls) -> None:
    world.register("a")
    world.register("b")
    join = after("a", "b", joinTimeoutSec=120)
    job = world.register(target=HTTP, **join)
    assert calls.hold is not None
    for instant in ("12:00", "12:00:45", "12:01:30"):
        calls.hold = replace(calls.hold, until=at(instant) + timedelta(seconds=45))
        world.tick_and_work(instant)
    world.pause(job)
    calls.hold = None
    world.tick_at("12:02:15")
    world.worker().work()
    assert world.state(job, "12:00") is RunState.SKIPPED

    assert redrive(world, world.resume(job)) is RunState.SUCCEEDED


@pytest.mark.parametrize("received_again", [False, True])
def test_a_run_on_request_that_the_overlap_policy_skipped_starts_again(
    world: World, *, received_again: bool
) -> None:
    """The earlier run has ended by now, but it had not when this one was due."""
    job = world.register(**MANUAL, overlap="SKIP")
    first = run_now(world, job, "1")
    world.tick()
    world.advance(seconds=1)
    second = run_now(world, job, "2")
    world.faults.call_before_next("scripts.fetch", lambda: world.advance(seconds=3))
    world.worker().work_one()
    world.tick()
    world.worker().work_one()
    states = [stored(world, run).state for run in (first, second)]
    assert states == [RunState.SUCCEEDED, RunState.SKIPPED]

    world.sequences.redrive(second.key, "report", downstream=False, reason=None)
    if received_again:
        [message] = (each for each in world.queue.log if each.key == second.key)
        world.queue.queues["default"].send(message.encode(), group="again", dedup="again")
        world.worker().work_one()
    world.tick()
    world.worker().work()

    assert stored(world, second).state is RunState.SUCCEEDED


def test_a_run_that_is_redriven_while_an_executor_skips_it_starts_again(world: World) -> None:
    """A user cancels and redrives it between the decision to skip it and the write."""
    job = world.register(**MANUAL, overlap="SKIP")
    run_now(world, job, "1")
    world.tick()
    world.advance(seconds=1)
    run = run_now(world, job, "2")
    world.faults.call_before_next("scripts.fetch", lambda: world.advance(seconds=3))
    world.worker().work_one()
    world.tick()

    def redriven() -> None:
        world.manage_runs.cancel(run.key, None)
        world.sequences.redrive(run.key, "report", downstream=False, reason=None)

    world.faults.call_before_next(
        "runs.skip", lambda: world.faults.call_before_next("runs.skip", redriven)
    )
    assert not world.worker().work_one().skipped
    world.tick()
    world.worker().work()

    assert stored(world, run).state is RunState.SUCCEEDED


@pytest.mark.parametrize("times", [99, 100, 101, 250])
def test_a_run_that_was_cancelled_and_redriven_many_times_starts_again(
    world: World, calls: Calls, times: int
) -> None:
    """Of the numbers of its dispatches, none is one that says something else about a run."""
    job = waiting(world, calls, "12:00:30")
    for _ in range(times):
        world.manage_runs.cancel(key(job), None)
        world.sequences.redrive(key(job), "report", downstream=False, reason=None)
    world.manage_runs.cancel(key(job), None)

    assert redrive(world, job) is RunState.SUCCEEDED


def test_a_redrive_takes_no_number_that_never_starts_a_run() -> None:
    """Nor one from which a run that waits reaches such a number."""
    assert {JOIN_END_DISPATCH, TIME_DISPATCH, HAND_OVER_DISPATCH} == {*SIGNALS}
    for latest in range(1, 1_200_000, 777):
        number = unsent_dispatch(latest)
        assert number > latest
        assert not any(number <= each < number + 9_000 for each in SIGNALS)


def test_a_redrive_takes_a_dispatch_that_was_not_sent() -> None:
    assert unsent_dispatch(3) > 3 + 3 * 24 * 60 * 2
