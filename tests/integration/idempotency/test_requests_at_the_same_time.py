"""Two requests with one key at the same time: one takes effect, and both get its response."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from tests.fakes import Clock
from tests.integration.deployment import Answer, Deployment
from tests.integration.idempotency.conftest import KEY
from tests.integration.idempotency.test_lost_requests_for_runs import dead_run


@pytest.fixture
def overtaken(system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Send a request that is repeated and answered just before its *call* of a store."""

    def send(store: type, call: str, path: str, **headers: str) -> tuple[Answer, Answer]:
        real, answers = getattr(store, call), []

        def second_first(*given: Any, **named: Any) -> Any:
            monkeypatch.setattr(store, call, real)
            clock.advance(timedelta(milliseconds=20))
            answers.append(system.call("POST", path, headers=KEY | headers))
            return real(*given, **named)

        monkeypatch.setattr(store, call, second_first)
        first = system.call("POST", path, headers=KEY | headers)
        return first, answers[0]

    return send


def test_redrive(system: Deployment, overtaken: Any) -> None:
    system.register(jobId="a")
    path = f"/v1/executions/{dead_run(system, 'a').key.execution_id}/redrive"

    first, second = overtaken(DynamoDbRunStore, "get", path)

    assert second.status == 200
    assert (first.status, first.document) == (second.status, second.document)
    assert system.call("POST", path, headers=KEY).document == second.document


def test_cancel(system: Deployment, overtaken: Any) -> None:
    system.register(jobId="a")
    run = system.call("POST", "/v1/jobs/a/run").document
    path = f"/v1/executions/{run['executionId']}/cancel"

    first, second = overtaken(DynamoDbRunStore, "get", path)

    assert (second.status, second.document["state"]) == (200, "CANCELLED")
    assert (first.status, first.document) == (second.status, second.document)


def test_change_of_a_version(system: Deployment, overtaken: Any) -> None:
    system.register(jobId="a")
    version = system.call("GET", "/v1/jobs/a").headers["etag"]

    first, second = overtaken(
        DynamoDbJobStore, "update", "/v1/jobs/a/pause", **{"If-Match": version}
    )

    assert (second.status, second.document["state"]) == (200, "PAUSED")
    assert (first.status, first.document) == (second.status, second.document)
