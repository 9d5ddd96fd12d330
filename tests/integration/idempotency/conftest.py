"""Requests whose answer is lost, and dead runs that are redriven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.run import Run, RunState
from tests.fakes import Clock
from tests.integration.deployment import TENANT, Deployment

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}
KEY = {"Idempotency-Key": "k"}
OTHER = {"Idempotency-Key": "l"}


@pytest.fixture
def lost(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sends a request that crashes between its effect and its answer."""

    def send(
        method: str, path: str, body: object = None, *, more: Mapping[str, str] | None = None
    ) -> None:
        def die(*_: object) -> str:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(DynamoDbRequestStore, "finish", die)
            with pytest.raises(KeyboardInterrupt):
                system.call(method, path, body, headers=KEY | dict(more or {}))

    return send


def jobs(system: Deployment, tenant: str = TENANT) -> list[Any]:
    items: list[Any] = system.call("GET", "/v1/jobs", tenant=tenant).document["items"]
    return items


def end(system: Deployment, running: Run, clock: Clock) -> Run:
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    system.runs.advance(running, running.ended(RunState.DEAD, failed, clock.now()))
    ended = system.runs.get(running.key)
    assert ended is not None
    assert (ended.state, ended.attempt) == (RunState.DEAD, 2)
    return ended
