"""A stack of the test kit, and jobs in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nextfire.responses.executions import ExecutionResponse
from nextfire.testing import Stack

ROOT = Path(__file__).parents[3]
NIGHTLY: dict[str, Any] = {
    "type": "CRON",
    "schedule": "0 3 * * *",
    "target": {"handler": "report"},
    "retryPolicy": {"maxAttempts": 3},
}
ON_REQUEST = NIGHTLY | {"type": "MANUAL", "schedule": None}
HOURLY = NIGHTLY | {"schedule": "0 * * * *", "timeoutSec": 10_800}


@pytest.fixture
def stack() -> Stack:
    stack = Stack()
    stack.script("report", lambda run: {"attempt": run.attempt})
    return stack


def states(runs: list[ExecutionResponse]) -> list[str]:
    return [run.state.value for run in runs]


def outcomes(run: ExecutionResponse) -> list[str | None]:
    return [each.outcome and each.outcome.value for each in run.attempts or []]
