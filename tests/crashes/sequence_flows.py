"""Flows of sequences: the hand-over to children, and joins."""

from __future__ import annotations

from typing import Any

from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import RunState
from tests.crashes.flows import ONCE, Flow
from tests.crashes.stack import Stack
from tests.fakes import Script


def after(*parents: str, **fields: Any) -> dict[str, Any]:
    edges = [{"job": parent} for parent in parents]
    return {"type": "AFTER", "schedule": None, "after": edges, "joinTimeoutSec": 150} | fields


class HandOver(Flow):
    """The worker ends the first run and hands it over; a watcher may have to send the others."""

    name = "sequence: a join"
    until = "12:02:40"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", **ONCE)
        stack.register("b", **after("report"))
        stack.register("d", **after("report", "b"))
        stack.at("12:00")
        stack.watcher().step()

    def act(self, stack: Stack) -> None:
        stack.worker().work()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        runs = [stack.run(job_id=name) for name in ("report", "b", "d")]
        for run in runs:
            assert run.state is RunState.SUCCEEDED, f"{run.key.execution_id}: {run.reason}"
            # A claim whose answer is lost costs an attempt.
            assert 1 <= run.attempt <= 2 + stack.cloud.died["worker"]
        first, b, d = runs
        for parent, child in ((first, b), (first, d), (b, d)):
            assert parent.finished_at is not None
            assert child.attempts[0].started_at >= parent.finished_at


class SkipDown(Flow):
    """The first run dies: its descendants are skipped, and say why."""

    name = "sequence: a failure down the chain"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", retryPolicy={"maxAttempts": 1}, **ONCE)
        stack.register("b", **after("report"))
        stack.register("c", **after("b"))
        stack.at("12:00")
        stack.watcher().step()

    def act(self, stack: Stack) -> None:
        stack.worker().work()

    def script(self, call: ScriptCall) -> Script:  # noqa: ARG002 — as `Flow`
        return Script(exit_code=1)

    def check(self, stack: Stack) -> None:
        first, b, c = (stack.run(job_id=name) for name in ("report", "b", "c"))
        assert first.state is RunState.DEAD
        assert (b.state, b.reason) == (
            RunState.SKIPPED,
            "trigger rule ALL_SUCCEEDED: report FAILED",
        )
        assert (c.state, c.reason) == (RunState.SKIPPED, "trigger rule ALL_SUCCEEDED: b SKIPPED")


SEQUENCE_FLOWS: list[Flow] = [HandOver(), SkipDown()]
