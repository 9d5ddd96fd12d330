"""Flows of sequences: the hand-over to children, and joins."""

from __future__ import annotations

from typing import Any

from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import RunState
from tests.crashes.flow import ONCE, Flow, RequestFlow, WorkerFlow, attempt, run_key, watch
from tests.crashes.processes import Api
from tests.crashes.stack import Stack
from tests.fakes import Script


def after(*parents: str, **fields: Any) -> dict[str, Any]:
    edges = [{"job": parent} for parent in parents]
    return {"type": "AFTER", "schedule": None, "after": edges, "joinTimeoutSec": 150} | fields


class HandOver(WorkerFlow):
    """The worker ends the first run and hands it over; a watcher may have to send the others."""

    name = "sequence: a join"
    until = "12:02:40"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", **ONCE)
        stack.register("b", **after("report"))
        stack.register("d", **after("report", "b"))
        stack.at("12:00")
        stack.watcher().step()

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


class TimeAndParents(WorkerFlow):
    """The time of two runs comes before their parent ends, which has to start both."""

    name = "sequence: a schedule and parents"
    until = "12:02:40"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", **ONCE)
        first = {"priority": "HIGH", "joinTimeoutSec": 150} | ONCE  # is sent before its parent
        stack.register("b", after=[{"job": "report"}], **first)
        latest = {"job": "report", "which": "latest", "withinSec": 60}
        stack.register("c", after=[latest], **first)
        stack.at("12:00")
        stack.watcher().step()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        report, *children = (stack.run(job_id=name) for name in ("report", "b", "c"))
        assert report.finished_at is not None
        for run in children:
            assert run.state is RunState.SUCCEEDED, f"{run.key.execution_id}: {run.reason}"
            # A claim whose answer is lost costs an attempt.
            assert 1 <= run.attempt <= 2 + stack.cloud.died["worker"]
            assert run.attempts[0].started_at >= report.finished_at


class AllOfAnInterval(WorkerFlow):
    """The time of a run comes before the two runs of its parent end."""

    name = "sequence: all runs of an interval"
    until = "12:02:40"

    def prepare(self, stack: Stack) -> None:
        dates = ["2026-05-24T12:00:00Z", "2026-05-24T12:00:01Z"]
        stack.register("report", type="DATES", schedule=dates)
        every = {"after": [{"job": "report", "which": "all"}], "joinTimeoutSec": 150}
        stack.register("b", type="DATES", schedule=dates[1:], priority="HIGH", **every)
        stack.at("12:00:01")
        stack.watcher().step()

    def check(self, stack: Stack) -> None:
        super().check(stack)
        reports = [stack.run(time) for time in ("12:00", "12:00:01")]
        run = stack.run("12:00:01", "b")
        assert run.state is RunState.SUCCEEDED, f"{run.key.execution_id}: {run.reason}"
        ends = [each.finished_at for each in reports if each.finished_at is not None]
        assert len(ends) == len(reports)
        assert run.attempts[0].started_at >= max(ends)


class SkipDown(WorkerFlow):
    """The first run dies: its descendants are skipped, and say why."""

    name = "sequence: a failure down the chain"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", retryPolicy={"maxAttempts": 1}, **ONCE)
        stack.register("b", **after("report"))
        stack.register("c", **after("b"))
        stack.at("12:00")
        stack.watcher().step()

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


class Teardown(WorkerFlow):
    """The work dies; what cleans up after it runs, because its setup succeeded."""

    name = "sequence: setup and teardown"
    until = "12:02:40"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", **ONCE)
        stack.register("b", **after("report"), retryPolicy={"maxAttempts": 1})
        edges = [{"job": "report", "setup": True}, {"job": "b"}]
        stack.register("drop", **after(triggerRule="ALL_DONE") | {"after": edges})
        stack.at("12:00")
        stack.watcher().step()

    def script(self, call: ScriptCall) -> Script:
        return Script(exit_code=1 if call.environment["NEXTFIRE_JOB_ID"] == "b" else 0)

    def check(self, stack: Stack) -> None:
        report, b, drop = (stack.run(job_id=name) for name in ("report", "b", "drop"))
        assert [each.state for each in (report, b, drop)] == [
            RunState.SUCCEEDED,
            RunState.DEAD,
            RunState.SUCCEEDED,
        ]
        assert b.finished_at is not None
        assert drop.attempts[0].started_at >= b.finished_at


class PastDeadline(WorkerFlow):
    """The first run starts after the deadline of the second, which is skipped with what follows."""

    name = "sequence: past the deadline"

    def prepare(self, stack: Stack) -> None:
        stack.register("report", **ONCE)
        stack.register("b", **after("report", deadlineSec=20))
        stack.register("c", **after("b"))
        stack.at("12:00")
        stack.watcher().step()
        stack.clock.advance(seconds=30)

    def check(self, stack: Stack) -> None:
        report, b, c = (stack.run(job_id=name) for name in ("report", "b", "c"))
        assert report.state is RunState.SUCCEEDED
        assert b.state is RunState.SKIPPED
        assert (b.reason or "").endswith("after its logical time; deadlineSec is 20 s"), b.reason
        assert (c.state, c.reason) == (RunState.SKIPPED, "trigger rule ALL_SUCCEEDED: b SKIPPED")


class OneAtATime(WorkerFlow):
    """Of two sequences one may be under way: the second starts after the first has ended."""

    name = "sequence: maxParallel"
    until = "12:02:40"

    def prepare(self, stack: Stack) -> None:
        dates = ["2026-05-24T12:00:00Z", "2026-05-24T12:00:01Z"]
        stack.register("report", type="DATES", schedule=dates, maxParallel=1)
        stack.register("b", **after("report"))
        stack.at("12:00")
        stack.watcher().step()
        stack.clock.advance(seconds=1)
        stack.watcher().step()

    def check(self, stack: Stack) -> None:
        runs = [stack.run(time, name) for time in ("12:00", "12:00:01") for name in ("report", "b")]
        assert all(run.state is RunState.SUCCEEDED for run in runs), runs
        first, last = sorted((runs[:2], runs[2:]), key=lambda each: each[0].attempts[0].started_at)
        assert first[1].finished_at is not None
        assert last[0].attempts[0].started_at >= first[1].finished_at


class RedriveDown(RequestFlow):
    """A link died, and so did its clean-up: both run again, the clean-up last."""

    name = "sequence: redrive downstream"
    jobs = ("report", "b", "cleanup", "last")

    def prepare(self, stack: Stack) -> None:
        once = {"retryPolicy": {"maxAttempts": 1}}
        stack.register("report", **once, **ONCE)
        stack.register("b", **after("report"), **once)
        stack.register("cleanup", **after("b", triggerRule="ALL_DONE"), **once)
        stack.register("last", **after("cleanup"))
        watch(stack, "12:00")
        stack.worker().work()
        stack.clock.advance(seconds=1)

    def ask(self, api: Api, stack: Stack) -> object:  # noqa: ARG002
        key = run_key()
        return api.sequences.redrive(key, "b", downstream=True, reason=None)

    def script(self, call: ScriptCall) -> Script:
        fails = call.environment["NEXTFIRE_JOB_ID"] in {"b", "cleanup"} and attempt(call) == 1
        return Script(exit_code=1 if fails else 0)

    def check(self, stack: Stack) -> None:
        runs = [stack.run(job_id=name) for name in self.jobs]
        # They have one attempt only, which a killed worker may have used up.
        if not stack.cloud.died["worker"]:
            assert [run.state for run in runs] == [RunState.SUCCEEDED] * 4
        assert [run.attempt for run in runs[:3]] == [1, 2, 2]
        assert runs[2].attempts[-1].started_at >= runs[1].attempts[-1].started_at


SEQUENCE_FLOWS: list[Flow] = [
    HandOver(),
    TimeAndParents(),
    AllOfAnInterval(),
    SkipDown(),
    Teardown(),
    PastDeadline(),
    OneAtATime(),
    RedriveDown(),
]
