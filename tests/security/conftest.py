"""The fixtures of the integration tests, for attacks on the functions as they are deployed."""

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
