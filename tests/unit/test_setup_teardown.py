"""Setup and teardown: what cleans up runs if its setup succeeded, whatever became of the work."""

from __future__ import annotations

from typing import Any

import pytest

import nextfire
from nextfire.domain.definition import JobDefinition
from nextfire.domain.redrive_plan import RedriveAction
from nextfire.domain.run import RunState
from nextfire.domain.trigger_rules import RuleAction
from tests.builders import a_definition
from tests.unit.sequencing import ONE_ATTEMPT, after, states
from tests.world import World

BEGINNING = "11:58:30"

DEAD, SKIPPED, SUCCEEDED = (
    RunState.DEAD,
    RunState.SKIPPED,
    RunState.SUCCEEDED,
)
EDGES = [{"job": "create", "setup": True}, {"job": "work"}]
DROP: dict[str, Any] = {
    "type": "AFTER",
    "schedule": None,
    "triggerRule": "ALL_DONE",
    "after": EDGES,
}


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ("", [SUCCEEDED, SUCCEEDED, SUCCEEDED]),
        ("work", [SUCCEEDED, DEAD, SUCCEEDED]),
        ("create", [DEAD, SKIPPED, SKIPPED]),
    ],
)
def test_a_teardown(world: World, fails: str, expected: list[RunState]) -> None:
    create = world.register("create", **ONE_ATTEMPT)
    work = world.register("work", **after("create"), **ONE_ATTEMPT)
    drop = world.register("drop", **DROP, **ONE_ATTEMPT)
    for name in ("create", "work"):
        world.script(exit_code=1 if name == fails else 0)
    world.tick_and_work("12:00")

    assert states(world, create, work, drop) == expected
    if fails == "create":
        assert world.run(drop, "12:00").reason == "setup create FAILED"
        plan = world.sequences.plan(world.run(create, "12:00").key, "create", downstream=False)
        assert [step.action for step in plan] == [
            RedriveAction.RUN,
            RedriveAction.FOLLOW,
            RedriveAction.FOLLOW,
        ]


def test_a_redriven_setup_reopens_its_teardown(world: World) -> None:
    create = world.register("create", **ONE_ATTEMPT)
    work = world.register("work", **after("create"), **ONE_ATTEMPT)
    drop = world.register("drop", **DROP, **ONE_ATTEMPT)
    world.script(exit_code=1)
    world.tick_and_work("12:00")

    world.sequences.redrive(world.run(create, "12:00").key, "create", downstream=False, reason=None)
    world.advance_and_work(seconds=2)

    assert states(world, create, work, drop) == [SUCCEEDED] * 3


def test_a_work_that_waits_for_another_job_is_awaited(world: World) -> None:
    create = world.register("create", **ONE_ATTEMPT)
    world.register("other", type="MANUAL", schedule=None)
    work = world.register("work", **after("create", "other"), joinTimeoutSec=60, **ONE_ATTEMPT)
    drop = world.register("drop", **DROP, **ONE_ATTEMPT)
    world.tick_and_work("12:00")
    assert world.sent == ["create 12:00"]

    world.tick_and_work("12:01")

    assert states(world, create, work, drop) == [SUCCEEDED, SKIPPED, SUCCEEDED]


def test_what_if_knows_setups() -> None:
    target = {"handler": "hello"}
    with nextfire.pipeline("p") as p:
        create = p.job("create", type="CRON", schedule="0 3 * * *", target=target)
        work = p.job("work", target=target)
        drop = p.job("drop", target=target, trigger_rule="ALL_DONE")
        create >> work >> drop
        drop.after(create, setup=True)

    failed = p.what_if(create).jobs["drop"]
    assert (failed.action, failed.reason) == (RuleAction.SKIP, "setup create FAILED")
    assert p.what_if(work).jobs["drop"].action is RuleAction.RUN


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"after": EDGES[:1]}, "all parents are a setup"),
        ({"after": [{"job": "create", "setup": 1}, {"job": "work"}]}, "setup"),
        (
            {
                "type": "CRON",
                "schedule": "* * * * *",
                "triggerRule": "ANY_FAILED",
                "after": [EDGES[0], {"job": "work", "which": "latest", "withinSec": 60}],
            },
            "ANY_FAILED never holds",
        ),
    ],
)
def test_edges_that_make_no_sense_are_rejected(fields: dict[str, Any], problem: str) -> None:
    document = a_definition(**DROP).document() | fields
    with pytest.raises(ValueError, match=problem):
        JobDefinition.model_validate(document)
