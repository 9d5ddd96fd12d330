"""The published limits and behaviours of AWS that the stand-in enforces, each with its source.

`python -m tests.strict --limits` prints the table. Quotas of an account may be higher than these
defaults; a test must not depend on that.
"""

from __future__ import annotations

from dataclasses import dataclass

_DYNAMODB = "DynamoDB developer guide"
_SQS = "SQS developer guide"
_LAMBDA = "Lambda developer guide"
_KB, _MB = 1024, 1024 * 1024
UNVERIFIED = "not compared"
"""`Limit.dated` of a row that was not compared with its source."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One row. `rule`: the rule that enforces it; `dated`: month of the announcement, or in which a
    copy of the source was last compared; `scaled`: whether `Strictness.scale` applies, as it does
    to rates.
    """

    rule: str
    value: float
    unit: str
    source: str
    dated: str
    scaled: bool = False


TABLE: dict[str, Limit] = {
    "partition-write": Limit(
        "throughput", 1_000, "write units/s per partition key",
        f"{_DYNAMODB}, Designing partition keys", "2026-11", scaled=True,
    ),
    "partition-read": Limit(
        "throughput", 3_000, "read units/s per partition key",
        f"{_DYNAMODB}, Designing partition keys", "2026-11", scaled=True,
    ),
    "new-table-write": Limit(
        "throughput", 4_000, "write units/s of a new on-demand table or index",
        f"{_DYNAMODB}, Initial throughput of on-demand mode", "2026-11", scaled=True,
    ),
    "new-table-read": Limit(
        "throughput", 12_000, "read units/s of a new on-demand table or index",
        f"{_DYNAMODB}, Initial throughput of on-demand mode", "2026-11", scaled=True,
    ),
    "burst": Limit(
        "throughput", 300, "s whose unused capacity a provisioned table saves, at most",
        f"{_DYNAMODB}, Burst capacity", "2026-11",
    ),
    "batch-part": Limit(
        "throughput", 1, "throttled item of a batch is returned as unprocessed, the rest is done",
        "DynamoDB API reference, BatchWriteItem and BatchGetItem", "2026-11",
    ),
    "conflict": Limit(
        "conflicts", 1, "transaction in progress per item",
        f"{_DYNAMODB}, Transaction conflict handling", "2026-11",
    ),
    "stale-read": Limit(
        "lag", 1.0, "s, longest lag of an eventually consistent read (typical, not guaranteed)",
        f"{_DYNAMODB}, Read consistency", "2026-11",
    ),
    "item": Limit(
        "sizes", 400 * _KB, "bytes per item", f"{_DYNAMODB}, Quotas", "2026-11"
    ),
    "transaction-items": Limit(
        "sizes", 100, "actions per transaction", f"{_DYNAMODB}, Quotas", "2026-11"
    ),
    "transaction-bytes": Limit(
        "sizes", 4 * _MB, "bytes per transaction", f"{_DYNAMODB}, Quotas", "2026-11"
    ),
    "batch-write-items": Limit(
        "sizes", 25, "items per BatchWriteItem", f"{_DYNAMODB}, Quotas", "2026-11"
    ),
    "batch-get-items": Limit(
        "sizes", 100, "items per BatchGetItem", "DynamoDB API reference, BatchGetItem", "2026-11"
    ),
    "message": Limit(
        "sizes", _MB, "bytes per message, and per batch of messages",
        f"{_SQS}, Message quotas", "2025-08",
    ),
    "batch-messages": Limit(
        "sizes", 10, "messages per batch", f"{_SQS}, Message quotas", "2026-11"
    ),
    "fifo-calls": Limit(
        "fifo-rate", 300, "calls/s per API action and queue, without high throughput",
        f"{_SQS}, Message quotas", "2026-11", scaled=True,
    ),
    "fifo-group-calls": Limit(
        "fifo-rate", 300, "calls/s per API action and message group, with high throughput",
        f"{_SQS}, Message quotas: per partition, and a group is in one", "2026-11", scaled=True,
    ),
    "fifo-in-flight": Limit(
        "in-flight", 120_000, "messages in flight per FIFO queue; then none is received, no error",
        f"{_SQS}, FIFO queue quotas (20,000 before)", "2024-11", scaled=True,
    ),
    "receive-id": Limit(
        "receive-ids", 1, "set of messages for all receives with one id, while they are hidden",
        "SQS API reference, ReceiveMessage: ReceiveRequestAttemptId", "2026-11",
    ),
    "account-concurrency": Limit(
        "concurrency", 10, "concurrent executions of a new account",
        f"{_LAMBDA}, Quotas: 1,000, reduced in new accounts (to 10, as observed)", "2026-11",
    ),
    "lost-event": Limit(
        "lost-events", 1, "asynchronous event may be lost after 202",
        f"{_LAMBDA}, Asynchronous invocation: events deleted without being sent", "2026-11",
    ),
    "payload": Limit(
        "sizes", 6 * _MB, "bytes of a synchronous invocation's payload",
        f"{_LAMBDA}, Quotas", "2026-11",
    ),
    "event": Limit(
        "sizes", _MB, "bytes of an asynchronous invocation's payload",
        f"{_LAMBDA}, Quotas", "2025-10",
    ),
    "latency": Limit(
        "latency", 10, "ms is the order of a call of DynamoDB; tails are an assumption",
        "AWS knowledge center, High latency of DynamoDB: single-digit milliseconds on average",
        "2026-11",
    ),
    "fault": Limit(
        "faults", 0.001, "of the calls: what S3 may fail (99.9 %), more than Lambda (99.95 %) and "
        "DynamoDB (99.99 %) may; chosen for all services, as that of SQS was not found",
        "Service level agreements of S3, Lambda and DynamoDB", "2026-11",
    ),
    "reset": Limit(
        "resets", 0.001, "of the calls: connection closed before or after the call took effect",
        "AWS SDK for Python guide, Retries: errors without a response", "2026-11",
    ),
}  # fmt: skip

HIGH_THROUGHPUT: dict[str, int] = {
    "us-east-1": 70_000, "us-west-2": 70_000, "eu-west-1": 70_000,
    "us-east-2": 19_000, "eu-central-1": 19_000,
}  # fmt: skip
"""Calls/s per API action of a FIFO queue with high throughput, by region (SQS developer guide,
Message quotas, compared in 2026-11)."""
HIGH_THROUGHPUT_ELSEWHERE = 2_400
"""Of other regions: the lowest value of that page, not compared; some have more."""


def limit(name: str) -> float:
    return TABLE[name].value
