"""The deployment of the integration tests, for fuzzing the whole system."""

from __future__ import annotations

import pytest

from tests.integration.conftest import (  # noqa: F401 — fixtures are found by name
    aws,
    backend,
    bucket,
    dlq_url,
    dynamodb,
    event_bus,
    outputs_bucket,
    queue_maker,
    queue_url,
    s3,
    sqs,
    system,
    tables,
)


@pytest.fixture(autouse=True)
def queues_may_be_purged_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case purges the queues; AWS allows one purge a minute."""
    monkeypatch.setenv("MOTO_SQS_ENFORCE_STRICT_QUEUE_PURGE_BEHAVIOUR", "false")
