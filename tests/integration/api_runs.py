"""Runs in each state behind the API of a deployment, and requests about them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from functions.api import services as api
from functions.authorizer import handler as authorizer
from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import floor_minute, isoformat
from nextfire.domain.job import Job
from nextfire.domain.run import Run, RunState
from tests.builders import NOON, claim_run
from tests.fakes import Clock
from tests.integration.deployment import Answer, Deployment, message_for

LEASE = timedelta(seconds=30)
UNKNOWN = "unknown.20260524T100000000Z-k3x9m2ab"


def stopped_clock(monkeypatch: pytest.MonkeyPatch, now: datetime | None = None) -> Clock:
    """Give the API a clock that is stopped: at *now*, or half a minute into this minute."""
    clock = Clock(now or floor_minute(SystemClock().now()) + timedelta(seconds=30))
    monkeypatch.setattr(api, "clock", clock)
    api.own_services.cache_clear()
    return clock


def stopped_clocks(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give the API and the authorizer a clock that stands at noon."""
    clock = Clock(NOON)
    monkeypatch.setattr(api, "clock", clock)
    monkeypatch.setattr(authorizer, "clock", clock)
    authorizer.services.cache_clear()
    return clock


def due_each_minute(system: Deployment, clock: Clock) -> Job:
    """A job that has been due each minute, for an hour."""
    clock.advance(hours=-1)
    job = system.register(jobId="a")
    clock.advance(hours=1)
    return job


def started(system: Deployment, job: Job, at: datetime, *, pool: str = "default") -> Run:
    """The run of *job* that was scheduled for *at*, RUNNING."""
    now = at + timedelta(seconds=1)
    claim = claim_run(
        system.runs,
        message_for(job, at),
        now,
        lease_until=now + LEASE,
        worker="w1",
        token=isoformat(at),
        pool=pool,
    )
    assert claim.taken
    return claim.run


def ended(
    system: Deployment,
    run: Run,
    state: RunState = RunState.DEAD,
    outcome: AttemptOutcome = AttemptOutcome.FAILED,
    **more: Any,
) -> Run:
    result = Result(outcome, "exit code 1", 1, **more)
    assert run.started_at is not None
    claim = system.runs.advance(run, run.ended(state, result, run.started_at))
    assert claim.taken
    return claim.run


def due(clock: Clock, minutes_ago: int = 0) -> datetime:
    return floor_minute(clock.now()) - timedelta(minutes=minutes_ago)


def dead(system: Deployment, job: Job, clock: Clock, minutes_ago: int, **more: Any) -> Run:
    return ended(system, started(system, job, due(clock, minutes_ago), **more))


def act(system: Deployment, run: RunKey, action: str, body: object = None, **more: Any) -> Answer:
    return system.call("POST", f"/v1/executions/{run.execution_id}/{action}", body, **more)


def get(system: Deployment, run: RunKey) -> dict[str, Any]:
    return system.call("GET", f"/v1/executions/{run.execution_id}").document
