"""Sequences that had run when a job was added to them: it has no run at that logical time."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.responses.executions import ExecutionResponse
from nextfire.testing import ScriptRun, Stack
from nextfire_cli.run_tree import _is_under_way

NO_RUN = ("KEEP", "has no run: its job was created after the runs of its parents")


@pytest.fixture
def stack() -> Stack:
    stack = Stack()
    stack.script("step", lambda _: None)
    return stack


def job(*parents: str) -> dict[str, Any]:
    after = {"type": "AFTER", "after": [{"job": each} for each in parents]}
    common = {"target": {"handler": "step"}, "retryPolicy": {"maxAttempts": 1}}
    return common | (after if parents else {"type": "MANUAL"})


def run_before_two_are_added(stack: Stack) -> ExecutionResponse:
    """A sequence runs; an hour later two links are added to it."""
    stack.put("extract", job())
    stack.put("load", job("extract"))
    run = stack.run("extract")
    stack.advance(hours=1)
    stack.put("report", job("load"))
    stack.put("mail", job("report", "extract"))
    return run


def shown(stack: Stack, run: ExecutionResponse) -> dict[str, str]:
    return {node.job_id: node.state for node in stack.tree(run).items}


def planned(steps: Any) -> dict[str, tuple[str, str]]:
    return {step.job_id: (step.action.value, step.reason) for step in steps.items}


def test_the_tree_has_no_run_that_never_starts(stack: Stack) -> None:
    run = run_before_two_are_added(stack)

    assert shown(stack, run) == {"extract": "SUCCEEDED", "load": "SUCCEEDED"}
    assert not _is_under_way(stack.client.get_chain(run.execution_id).document)


def test_a_cancel_cancels_no_run_that_never_starts(stack: Stack) -> None:
    run = run_before_two_are_added(stack)

    done = planned(stack.client.cancel_chain(run.execution_id))

    assert done["report"] == done["mail"] == NO_RUN
    assert stack.runs("report") == []


def test_a_redrive_says_which_of_them_start(stack: Stack) -> None:
    stack.fail("step", times=1)
    run = run_before_two_are_added(stack)
    assert shown(stack, run) == {"extract": "DEAD", "load": "SKIPPED"}

    plan = planned(stack.client.redrive_chain(run.execution_id, from_="extract", dry_run=True))
    kept = planned(stack.client.redrive_chain(run.execution_id, from_="mail", dry_run=True))
    stack.client.redrive_chain(run.execution_id, from_="extract")
    stack.advance(minutes=1)

    waits = ("KEEP", "has no run yet: starts when its parents have ended")
    assert (plan["report"], plan["mail"]) == (waits, waits)
    assert kept["mail"] == NO_RUN
    assert set(shown(stack, run).values()) == {"SUCCEEDED"}
    assert len(shown(stack, run)) == 4


def test_below_a_run_that_was_redriven_they_wait(stack: Stack) -> None:
    def step(run: ScriptRun) -> None:
        if run.attempt > 1:
            run.sleep(minutes=2)

    stack.script("step", step)
    stack.fail("step", times=1)
    run = run_before_two_are_added(stack)
    stack.client.redrive_chain(run.execution_id, from_="extract")
    stack.advance(minutes=1)

    assert shown(stack, run)["report"] == "WAITING"
    assert planned(stack.client.cancel_chain(run.execution_id))["report"][0] == "CANCEL"
