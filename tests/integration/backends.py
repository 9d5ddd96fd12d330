"""Where the contract suites run, and where what plays AWS there is known to deviate from AWS.

A suite names its backends by a fixture:

    @pytest.fixture(params=(MEMORY, *DYNAMODB))
    def backend(request): ...

What concerns an adapter and no fake is marked `on_dynamodb` or `on_aws`. A test that a backend
fails through no fault of the adapter names that backend's `Deviation`: it is run there all the
same, and must fail, so that an entry goes as soon as the backend is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

MEMORY = "memory"
MOTO = "moto"
MINISTACK = "ministack"
DYNAMODB_LOCAL = "dynamodb-local"

DYNAMODB = (MOTO, MINISTACK, DYNAMODB_LOCAL)
"""What plays DynamoDB."""
AWS = (MOTO, MINISTACK)
"""What plays the other services."""
REAL_TIME = frozenset({MINISTACK, DYNAMODB_LOCAL})
"""Servers, whose clock no test moves."""

on_dynamodb = pytest.mark.parametrize("backend", DYNAMODB)
on_aws = pytest.mark.parametrize("backend", AWS)
COLLECTED = pytest.StashKey[list[pytest.Function]]()
"""In pytest's configuration: all tests that were collected, deselected ones included."""

takes_minutes = pytest.mark.takes_minutes
"""On a backend of `REAL_TIME`, run with NEXTFIRE_LONG only."""


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@dataclass(frozen=True, slots=True)
class Deviation:
    """Something that *backend* does otherwise than AWS.

    `source`: where AWS says what it does. `uncovered`: why no other backend does as AWS does.
    """

    name: str
    backend: str
    aws: str
    here: str
    source: str
    uncovered: str = ""

    @property
    def mark(self) -> pytest.MarkDecorator:
        """What marks a test, or one of its parameters, that fails on the backend for this."""
        return pytest.mark.deviates.with_args(self)


_RECEIPTS = "https://repost.aws/knowledge-center/sqs-receipt-handle-error"

TIME_OF_AN_EVENT = Deviation(
    "time of an event",
    MINISTACK,
    aws="An event is delivered with the `Time` of its entry.",
    here="It is delivered with the time at which it was put.",
    source="EventBridge API, PutEventsRequestEntry: Time",
)

DEDUP_OF_WHAT_WAS_DELETED = Deviation(
    "deduplication of what was deleted",
    MOTO,
    aws="A FIFO queue drops a message whose deduplication id was accepted in the last five "
    "minutes, whether that message is still there or not.",
    here="It compares with the messages that are still in the queue.",
    source="SQS Developer Guide, Using the message deduplication ID",
)

GROUP_SCOPED_DEDUP = Deviation(
    "deduplication scope",
    MOTO,
    aws="With the scope messageGroup, a deduplication id counts within its message group.",
    here="It counts in the whole queue.",
    source="SQS API, CreateQueue: DeduplicationScope",
)
RECEIPTS_OF_BEFORE = Deviation(
    "receipts of before",
    MOTO,
    aws="A FIFO queue refuses a receipt handle whose message was received again.",
    here="Every receipt handle of a message is good for as long as it is in the queue.",
    source=_RECEIPTS,
)
EXPIRED_RECEIPTS = (
    Deviation(
        "expired receipts (moto)",
        MOTO,
        aws="A FIFO queue refuses a receipt handle as soon as its message is visible again.",
        here="It takes it.",
        source=_RECEIPTS,
        uncovered="The fake alone refuses it.",
    ),
    Deviation(
        "expired receipts (MiniStack)",
        MINISTACK,
        aws="A FIFO queue refuses a receipt handle as soon as its message is visible again.",
        here="It takes it until the message is received again.",
        source=_RECEIPTS,
        uncovered="The fake alone refuses it.",
    ),
)

DEVIATIONS = (
    TIME_OF_AN_EVENT,
    DEDUP_OF_WHAT_WAS_DELETED,
    GROUP_SCOPED_DEDUP,
    RECEIPTS_OF_BEFORE,
    *EXPIRED_RECEIPTS,
)
