"""The runner of a pool that is closed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast
from unittest.mock import Mock

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ports.targets import AttemptResult, Hold
from nextfire.domain.run import Run, RunState
from nextfire.targets.closed_pool import ClosedPool
from tests.builders import NOON, a_job, run_key


def use(tenant: str) -> tuple[Mock, Hold | None, AttemptResult]:
    """The runner of a pool of tenant acme, and what it answered for a run of *tenant*."""
    runner = Mock()
    closed = ClosedPool(runner, {"acme"})
    job, run = a_job(tenant=tenant), Run(run_key(tenant=tenant), RunState.RUNNING)
    held = closed.admit(job, run.key, NOON, first=True)
    closed.release(job, run.key)
    return runner, held, closed.attempt(job, run, cast("Any", None), timedelta(minutes=1))


def test_its_tenants_have_its_runner() -> None:
    runner, held, attempted = use("acme")

    assert [call[0] for call in runner.method_calls] == ["admit", "release", "attempt"]
    assert (held, attempted) == (runner.admit.return_value, runner.attempt.return_value)


def test_for_others_the_runner_is_not_even_asked() -> None:
    """`admit` would count a call of an endpoint, or probe one that is down."""
    runner, held, attempted = use("other")

    assert runner.method_calls == []
    assert held is None
    assert (attempted.result.outcome, attempted.result.permanent) == (AttemptOutcome.FAILED, True)
    assert "closed to tenant 'other'" in (attempted.result.reason or "")
