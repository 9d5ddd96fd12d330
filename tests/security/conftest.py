"""The deployment of the integration tests, for those that attack it."""

from __future__ import annotations

from tests.integration.conftest import (
    aws,
    backend,
    bucket,
    dlq_url,
    dynamodb,
    event_bus,
    outputs_bucket,
    queue_url,
    s3,
    sqs,
    system,
    tables,
)

__all__ = [
    "aws",
    "backend",
    "bucket",
    "dlq_url",
    "dynamodb",
    "event_bus",
    "outputs_bucket",
    "queue_url",
    "s3",
    "sqs",
    "system",
    "tables",
]
