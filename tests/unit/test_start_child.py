"""The run of a child is started once: not while an executor has it, nor after it has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState, Trigger
from nextfire.usecases.start_child import StartChild
from tests.builders import at
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World

BEGINNING = "11:58:30"


@pytest.fixture
def child(world: World) -> Job:
    world.register("a", **ONE_ATTEMPT)
    delayed = {"after": [{"job": "a", "delaySec": 90}]}
    return world.register("b", **after("a") | delayed)


@pytest.fixture
def starting(world: World) -> StartChild:
    return StartChild(world.runs, world.due, world.queue, world.clock, world.shares.quotas)


def key_of(child: Job) -> RunKey:
    return child.run_key(at("12:00"))


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        pytest.param({}, ["b 12:00 #3"], id="reopened"),
        pytest.param({"claim_token": "t"}, [], id="waits for a retry"),
        pytest.param({"claim_token": "t", "state": RunState.SUCCEEDED}, [], id="succeeded"),
        pytest.param({"state": RunState.CANCELLED}, [], id="cancelled before it started"),
        pytest.param({"trigger": Trigger.MANUAL}, [], id="on request"),
    ],
)
def test_a_run_that_an_executor_has_or_that_has_ended_is_not_sent_again(
    world: World, child: Job, starting: StartChild, fields: dict[str, Any], sent: list[str]
) -> None:
    stored = replace(Run(key_of(child), RunState.PENDING, dispatch=3), **fields)

    starting.start(child, stored.key, stored, world.now, "ALL_SUCCEEDED: a SUCCEEDED")

    assert world.sent == sent


def test_a_dispatch_that_is_not_stored_is_an_error(
    world: World, child: Job, starting: StartChild
) -> None:
    world.due.refuses = lambda _: True

    with pytest.raises(UnavailableError):
        starting.dispatch_later(child, key_of(child), world.now, 1)


def test_a_run_that_is_reopened_waits_for_the_delay_of_its_edge(world: World, child: Job) -> None:
    world.script(exit_code=1)
    world.tick_and_work("12:00")
    assert states(world, child) == [RunState.SKIPPED]
    (parent,) = (key for key in world.runs.all if key.job != child.key)

    world.at("12:00:20")
    world.manage_runs.redrive(parent, "fixed")
    world.tick_and_work("12:00:30", "12:01:59")
    assert states(world, child) == [RunState.PENDING]
    assert world.sent == ["a 12:00", "a 12:00 #10001"]
    world.tick_and_work("12:02:01")

    assert states(world, child) == [RunState.SUCCEEDED]
