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

LEAN_MINISTACK = "lean-ministack"
LEAN_DYNAMODB_LOCAL = "lean-dynamodb-local"

LEAN = {LEAN_MINISTACK: MINISTACK, LEAN_DYNAMODB_LOCAL: DYNAMODB_LOCAL}
"""Servers that the lean client calls; on all other backends boto3 does. moto is a part of boto3."""
DYNAMODB = (MOTO, MINISTACK, DYNAMODB_LOCAL, *LEAN)
"""What plays DynamoDB."""
SQS = (MOTO, MINISTACK, LEAN_MINISTACK)
"""What plays SQS."""
AWS = (MOTO, MINISTACK)
"""What plays the other services."""
REAL_TIME = frozenset({MINISTACK, DYNAMODB_LOCAL, *LEAN})
"""Servers, whose clock no test moves."""

on_dynamodb = pytest.mark.parametrize("backend", DYNAMODB)
on_sqs = pytest.mark.parametrize("backend", SQS)
on_aws = pytest.mark.parametrize("backend", AWS)
COLLECTED = pytest.StashKey[list[pytest.Function]]()
"""In pytest's configuration: all tests that were collected, deselected ones included."""

takes_minutes = pytest.mark.takes_minutes
"""On a backend of `REAL_TIME`, run with NEXTFIRE_LONG only."""


def server_of(backend: str) -> str:
    """What answers there, whichever client asks."""
    return LEAN.get(backend, backend)


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
ORDER_OF_WHAT_IS_SHOWN = Deviation(
    "order of what is shown",
    MOTO,
    aws="A FIFO queue delivers the messages of a group in the order in which they were sent.",
    here="Of several that become visible in one millisecond, it delivers the last one first.",
    source="SQS Developer Guide, FIFO queue delivery logic",
)
_EXPIRED = "A FIFO queue refuses a receipt handle as soon as its message is visible again."
EXPIRED_RECEIPTS_MOTO = Deviation(
    "expired receipts (moto)",
    MOTO,
    aws=_EXPIRED,
    here="It takes it.",
    source=_RECEIPTS,
    uncovered="No backend refuses it; the fake does.",
)
EXPIRED_RECEIPTS_MINISTACK = Deviation(
    "expired receipts (MiniStack)",
    MINISTACK,
    aws=_EXPIRED,
    here="It takes it until the message is received again.",
    source=_RECEIPTS,
    uncovered="No backend refuses it; the fake does.",
)
TWELVE_HOURS = Deviation(
    "twelve hours",
    MINISTACK,
    aws="A visibility timeout of more than 43200 s is refused.",
    here="It is taken.",
    source="SQS API, ChangeMessageVisibility: VisibilityTimeout",
)
_XML = "A message or attribute with a character that XML 1.0 does not have is refused."
_ADAPTER_ALONE = "No backend refuses it; a test of run_queue looks at what the adapter sends."
CHARACTERS_MOTO = Deviation(
    "characters (moto)",
    MOTO,
    aws=_XML,
    here="Every text is taken.",
    source="SQS API, SendMessage: MessageBody and InvalidMessageContents",
    uncovered=_ADAPTER_ALONE,
)
CHARACTERS_MINISTACK = Deviation(
    "characters (MiniStack)",
    MINISTACK,
    aws=_XML,
    here="Every text is taken.",
    source="SQS API, SendMessage: MessageBody and InvalidMessageContents",
    uncovered=_ADAPTER_ALONE,
)
REQUEST_TOKENS = Deviation(
    "request tokens",
    MOTO,
    aws="A transaction that is sent again with its client request token is not done again, and is "
    "answered as if it were.",
    here="The token means nothing.",
    source="DynamoDB API, TransactWriteItems: ClientRequestToken",
)
CAPACITY_UNITS = Deviation(
    "capacity units",
    MOTO,
    aws="A request is told what it consumed, by the size of its items.",
    here="Whatever it is, it is told the same.",
    source="DynamoDB Developer Guide, Read/write capacity mode: capacity unit consumption",
)
WRITES_OF_A_BATCH = Deviation(
    "writes of a batch",
    MOTO,
    aws="BatchWriteItem refuses more than 25 requests.",
    here="It takes them.",
    source="DynamoDB API, BatchWriteItem: RequestItems",
)
ITEMS_OF_A_TRANSACTION = Deviation(
    "items of a transaction",
    DYNAMODB_LOCAL,
    aws="A transaction with two operations on one item is a ValidationException.",
    here="Its conditions are tried first, one operation after the other.",
    source="DynamoDB API, TransactWriteItems",
)
PATHS_OF_AN_UPDATE = Deviation(
    "paths of an update",
    MINISTACK,
    aws="An update expression that names a path twice is refused.",
    here="Its last assignment counts.",
    source="DynamoDB API, UpdateItem: UpdateExpression; two document paths overlap",
)

SIGNED_URLS = Deviation(
    "signed URLs",
    MOTO,
    aws="Who has a signed URL may send what was signed: that object, with those headers, whose "
    "body has that digest.",
    here="No signature is looked at.",
    source="S3 User Guide, Download and upload objects with presigned URLs",
)

DEVIATIONS = (
    TIME_OF_AN_EVENT,
    DEDUP_OF_WHAT_WAS_DELETED,
    GROUP_SCOPED_DEDUP,
    RECEIPTS_OF_BEFORE,
    ORDER_OF_WHAT_IS_SHOWN,
    EXPIRED_RECEIPTS_MOTO,
    EXPIRED_RECEIPTS_MINISTACK,
    TWELVE_HOURS,
    CHARACTERS_MOTO,
    CHARACTERS_MINISTACK,
    REQUEST_TOKENS,
    CAPACITY_UNITS,
    WRITES_OF_A_BATCH,
    SIGNED_URLS,
    ITEMS_OF_A_TRANSACTION,
    PATHS_OF_AN_UPDATE,
)
