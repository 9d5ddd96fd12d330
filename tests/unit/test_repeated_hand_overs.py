"""The message of a run that has ended comes once more, and hands it over again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from tests.builders import a_message
from tests.fakes import Killed
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


def test_the_end_of_a_join_that_has_ended_starts_nothing_of_a_new_child(world: World) -> None:
    """Its run was handed over to the children of that time."""
    world.register("a")
    world.register("b")
    d = world.register("d", **after("a", "b", joinTimeoutSec=1200))
    world.register("x", type="MANUAL", schedule=None)
    e = world.register("e", **after("x"))
    world.tick_and_work("12:00")
    assert states(world, d) == [SUCCEEDED]

    world.at("12:01")
    world.change(e, **after("d"))
    world.tick_and_work("12:20:01")

    assert "d 12:00 #1000000" in world.sent
    assert all(key.job != e.key for key in world.runs.all)


def test_the_end_of_a_join_hands_over_a_skipped_run(world: World) -> None:
    """Its executor died before that, and the parent was redriven: it does not skip the run again,
    so nothing else would.
    """
    a = world.register("a", **ONE_ATTEMPT)
    world.register("x", type="MANUAL", schedule=None)
    c = world.register("c", **after("a", "x", joinTimeoutSec=600))
    d = world.register("d", **after("c"))
    world.script(exit_code=1)
    world.tick_at("12:00")

    def die() -> None:
        if c.key in {key.job for key in world.runs.all}:
            raise Killed

    world.faults.call_before_each("joins.read", die)
    with pytest.raises(Killed):
        world.worker("a").work()
    world.faults.clear()
    assert states(world, c) == [SKIPPED]

    redrive(world, a, "a")
    work(world, seconds=61)
    assert states(world, a, c) == [SUCCEEDED, SKIPPED]
    assert all(key.job != d.key for key in world.runs.all)
    world.tick_and_work("12:10:01")

    assert states(world, c, d) == [SKIPPED] * 2
