"""The message of a run that has ended comes once more, and hands it over again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.builders import a_message
from tests.fakes import Killed, raise_killed
from tests.unit.redriving import DEAD, SKIPPED, SUCCEEDED, redrive, run_key, work
from tests.unit.sequencing import ONE_ATTEMPT, after, chain, states
from tests.world import World

PENDING = RunState.PENDING


def redeliver(world: World, job: Job) -> None:
    """Deliver another message of the job's run of 12:00, and work it off."""
    body = a_message(run_key(job), dispatch=1).encode()
    world.queue.queues["default"].send(body, group="again", dedup=f"again {job.key.job_id}")
    world.worker().work()


def test_a_run_that_its_parents_skipped_stays_skipped_if_its_rule_changes(world: World) -> None:
    a, b, c = chain(world, "a", "b", "c", **ONE_ATTEMPT)
    world.jobs.spoil(c.key)  # it is handed over late, long after its parent was skipped
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    world.jobs.repair(c.key)
    world.tick_and_work("12:15")
    assert states(world, a, b, c) == [DEAD, SKIPPED, SKIPPED]

    world.change(c, triggerRule="ALL_DONE")
    redeliver(world, a)

    assert states(world, a, b, c) == [DEAD, SKIPPED, SKIPPED]


def test_a_run_that_awaits_a_redriven_parent_does_not_start_for_another_one(world: World) -> None:
    """What is known of the redriven parent is its first end, until it has ended again."""
    a = world.register("a", **ONE_ATTEMPT)
    b, x = (world.register(name, **after("a"), **ONE_ATTEMPT) for name in "bx")
    c = world.register("c", **after("b", "x", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    world.script()
    world.script()
    world.script(exit_code=1)
    world.script(exit_code=1, lasts=timedelta(seconds=30))
    world.tick_and_work("12:00")
    assert states(world, a, b, x, c) == [SUCCEEDED, SUCCEEDED, DEAD, DEAD]
    world.advance(seconds=30)

    redrive(world, x, "x", downstream=True)
    redeliver(world, b)
    assert states(world, x, c) == [PENDING, SKIPPED]

    world.tick()
    world.worker().work()
    assert states(world, x, c) == [SUCCEEDED, SUCCEEDED]


def test_a_run_that_a_redriven_parent_skipped_stays_skipped_if_its_rule_changes(
    world: World,
) -> None:
    once = {"type": "ONCE", "schedule": "2026-05-24T12:00:00Z", **ONE_ATTEMPT}
    a, x = (world.register(name, **once) for name in "ax")
    c = world.register("c", **after("a", "x", triggerRule="ALL_DONE"), **ONE_ATTEMPT)
    world.script()
    world.script(exit_code=1, lasts=timedelta(seconds=30))
    for _ in range(2):  # c, and x again
        world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, a, x, c) == [SUCCEEDED, DEAD, DEAD]
    world.change(c, triggerRule="ALL_SUCCEEDED")
    redrive(world, x, "x", downstream=True)
    work(world)
    assert states(world, a, x, c) == [SUCCEEDED, DEAD, SKIPPED]

    world.change(c, triggerRule="ALL_DONE")
    redeliver(world, a)

    assert states(world, a, x, c) == [SUCCEEDED, DEAD, SKIPPED]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_end_of_a_join_that_has_ended_starts_nothing_of_a_new_child(
    world: World, exit_code: int
) -> None:
    """Its run succeeded, or was skipped, and was handed over to the children of that time."""
    world.register("a")
    world.register("b", **ONE_ATTEMPT)
    d = world.register("d", **after("a", "b", joinTimeoutSec=1200))
    world.register("x", type="MANUAL", schedule=None)
    e = world.register("e", **after("x", triggerRule="ALL_DONE"))
    world.script()
    world.script(exit_code=exit_code)
    world.tick_and_work("12:00")
    assert states(world, d) == [SKIPPED if exit_code else SUCCEEDED]

    world.at("12:01")
    world.change(e, **after("d"))
    world.tick_and_work("12:20:01")

    assert "d 12:00 #1000000" in world.sent
    assert all(key.job != e.key for key in world.runs.all)


def test_the_end_of_a_join_that_skipped_the_run_of_a_paused_job_is_repeated(world: World) -> None:
    """Its executor died before it handed the run over."""
    world.register("a")
    world.register("x", type="MANUAL", schedule=None)
    d = world.register("d", **after("a", "x", joinTimeoutSec=600))
    e = world.register("e", **after("d"))
    world.tick_and_work("12:00")
    world.at("12:01")
    world.pause(world.change(d, after=[{"job": "a"}]))
    world.tick_at("12:10:01")
    world.faults.call_before_next(
        "runs.skip", lambda: world.faults.call_before_next("jobs.get", raise_killed)
    )
    with pytest.raises(Killed):
        world.worker("a").work()
    assert states(world, d) == [SKIPPED]
    world.advance(seconds=61)
    world.worker("b").work()

    assert states(world, d, e) == [SKIPPED] * 2
