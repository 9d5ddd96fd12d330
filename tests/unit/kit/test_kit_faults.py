"""Faults in the test kit: scripts that fail, workers that die, outages and throttled calls."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from nextfire.testing import ScriptRun, Stack
from tests.unit.kit.conftest import NIGHTLY, ON_REQUEST, outcomes

# Faults


def test_a_failed_script_is_not_called(stack: Stack) -> None:
    called: list[int] = []
    stack.script("report", lambda run: called.append(run.attempt))
    stack.put("nightly", NIGHTLY)
    stack.fail("report", times=2)
    stack.advance(days=1)

    [run] = stack.runs("nightly")
    assert (outcomes(run), called) == (["FAILED", "FAILED", "SUCCEEDED"], [3])


def test_a_crashed_worker_did_its_work_and_is_followed_by_another_after_its_lease(
    stack: Stack,
) -> None:
    called: list[str] = []
    stack.script("report", lambda run: called.append(run.execution_id))
    stack.put("nightly", NIGHTLY)
    stack.crash_worker(during="report")
    stack.advance(days=1)

    [run] = stack.runs("nightly")
    first, second = run.attempts or []
    assert outcomes(run) == ["WORKER_LOST", "SUCCEEDED"]
    assert second.started_at - first.started_at == timedelta(seconds=60)
    assert first.worker != second.worker
    assert called == [run.execution_id] * 2


def test_the_next_attempt_finds_the_checkpoint_of_a_crashed_one(stack: Stack) -> None:
    def report(run: ScriptRun) -> Any:
        if run.checkpoint is None:
            run.save_checkpoint({"page": 7})
            run.sleep(minutes=2)
            run.crash()
        return run.checkpoint

    stack.script("report", report)
    stack.put("nightly", NIGHTLY)
    stack.advance(days=1)

    [run] = stack.runs("nightly", state="SUCCEEDED")
    assert stack.result(run) == {"page": 7}


def test_a_function_cannot_catch_the_death_of_its_worker(stack: Stack) -> None:
    def report(run: ScriptRun) -> int:
        with suppress(BaseException):
            if run.attempt == 1:
                run.crash()
        return run.attempt

    stack.script("report", report)
    stack.put("h", ON_REQUEST)
    stack.run("h")
    stack.advance(minutes=5)

    [run] = stack.runs("h")
    assert outcomes(run) == ["WORKER_LOST", "SUCCEEDED"]
    assert stack.result(run) == 2


def test_a_dead_worker_stores_nothing_more(stack: Stack) -> None:
    found = []

    def report(run: ScriptRun) -> None:
        found.append(run.checkpoint)
        try:
            if run.attempt == 1:
                run.crash()
        finally:
            run.save_checkpoint("cleaned up")

    stack.script("report", report)
    stack.put("nightly", NIGHTLY)
    stack.advance(days=1)

    assert found == [None, None]


def test_an_outage_stops_a_watcher_that_has_a_backlog() -> None:
    stack = Stack(quotas={"runsPerMinute": 1})
    stack.script("report", lambda _: None)
    for number in range(3):
        stack.put(f"job{number}", ON_REQUEST)
        stack.run(f"job{number}")
    stack.advance(seconds=10)
    with stack.outage():
        stack.advance(minutes=5)
    assert len(stack.runs(state="SUCCEEDED")) == 1
    ended_at = stack.advance()
    stack.advance(minutes=5)
    [_, *later] = sorted(run.dispatched_at for run in stack.runs() if run.dispatched_at)
    assert len(later) == 2
    assert min(later) >= ended_at


def test_a_throttled_call_delays_and_loses_nothing(stack: Stack) -> None:
    stack.put("nightly", NIGHTLY)
    stack.throttle("queue.send", times=2)
    stack.throttle("runs.claim")
    stack.advance(days=2)

    first, second = stack.runs("nightly", state="SUCCEEDED")
    assert first.started_at and first.started_at > first.scheduled_at  # noqa: PT018
    assert second.started_at == second.scheduled_at


def test_only_calls_of_stores_are_throttled(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"No call 'due\.pit': write due\.put"):
        stack.throttle("due.pit")


def test_a_defect_of_a_process_is_raised(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.put("nightly", NIGHTLY)
    monkeypatch.setattr("nextfire.usecases.execute_run.decode_message", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stack.advance(days=1)
