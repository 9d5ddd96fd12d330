"""Backends of the contract suites, and the known deviations of the emulators from AWS.

A suite names its backends with a fixture:

    backend = on_each(MEMORY, *DYNAMODB)

Tests for adapters without a fake are marked `on_dynamodb` or `on_aws`. If a backend fails a test
through no fault of the adapter, the test names that backend's `Deviation`. It still runs there, and
must fail, so the deviation is removed as soon as the backend is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

MEMORY = "memory"
SQLITE = "sqlite"
FILES = "files"
LOCAL = frozenset({SQLITE, FILES})
"""The adapters of the stack on one machine. Each contract runs on the fake and on one of these."""
MOTO = "moto"
MINISTACK = "ministack"
DYNAMODB_LOCAL = "dynamodb-local"

LEAN_MINISTACK = "lean-ministack"
LEAN_DYNAMODB_LOCAL = "lean-dynamodb-local"

LEAN = {LEAN_MINISTACK: MINISTACK, LEAN_DYNAMODB_LOCAL: DYNAMODB_LOCAL}
"""Servers that the lean client calls; boto3 calls all other backends. moto is a part of boto3."""
DYNAMODB = (MOTO, MINISTACK, DYNAMODB_LOCAL, *LEAN)
"""Emulators of DynamoDB."""
SQS = (MOTO, MINISTACK, LEAN_MINISTACK)
"""Emulators of SQS."""
AWS = (MOTO, MINISTACK)
"""Emulators of the other services."""
STORES = (MEMORY, SQLITE, *DYNAMODB)
"""The fake, and all adapters of a table."""
OBJECTS = (MEMORY, FILES, *AWS)
"""The fake, and all adapters of objects and secrets."""
REAL_TIME = frozenset({MINISTACK, DYNAMODB_LOCAL, *LEAN})
"""Servers with a clock that tests cannot move."""

on_dynamodb = pytest.mark.parametrize("backend", DYNAMODB)
on_sqs = pytest.mark.parametrize("backend", SQS)
on_aws = pytest.mark.parametrize("backend", AWS)
COLLECTED = pytest.StashKey[list[pytest.Function]]()
"""In pytest's configuration: all collected tests, including deselected ones."""

takes_minutes = pytest.mark.takes_minutes
"""On a backend of `REAL_TIME`, run with NEXTFIRE_LONG only."""


def on_each(*backends: str) -> Any:
    """The fixture `backend` of a suite that runs on each of *backends*."""

    @pytest.fixture(name="backend", params=backends)
    def current(request: pytest.FixtureRequest) -> str:
        return str(request.param)

    return current


def server_of(backend: str) -> str:
    """The server that answers there, whatever the client."""
    return LEAN.get(backend, backend)


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@dataclass(frozen=True, slots=True)
class Deviation:
    """A difference between *backend* and AWS.

    `source`: AWS documentation of its behavior. `uncovered`: why no other backend behaves like AWS.
    """

    name: str
    backend: str
    aws: str
    here: str
    source: str
    uncovered: str = ""

    @property
    def mark(self) -> pytest.MarkDecorator:
        """The mark for a test or parameter that fails on the backend because of this deviation."""
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
    "minutes, even if that message was deleted.",
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
    aws="A FIFO queue rejects a receipt handle whose message was received again.",
    here="Every receipt handle of a message is valid while the message is in the queue.",
    source=_RECEIPTS,
)
ORDER_OF_WHAT_IS_SHOWN = Deviation(
    "order of what is shown",
    MOTO,
    aws="A FIFO queue delivers the messages of a group in the order in which they were sent.",
    here="If several become visible in one millisecond, it delivers the last one first.",
    source="SQS Developer Guide, FIFO queue delivery logic",
)
_EXPIRED = "A FIFO queue rejects a receipt handle as soon as its message is visible again."
EXPIRED_RECEIPTS_MOTO = Deviation(
    "expired receipts (moto)",
    MOTO,
    aws=_EXPIRED,
    here="It accepts the handle.",
    source=_RECEIPTS,
    uncovered="No backend rejects it; the fake does.",
)
EXPIRED_RECEIPTS_MINISTACK = Deviation(
    "expired receipts (MiniStack)",
    MINISTACK,
    aws=_EXPIRED,
    here="It accepts the handle until the message is received again.",
    source=_RECEIPTS,
    uncovered="No backend rejects it; the fake does.",
)
TWELVE_HOURS = Deviation(
    "twelve hours",
    MINISTACK,
    aws="A visibility timeout of more than 43200 s is rejected.",
    here="It is accepted.",
    source="SQS API, ChangeMessageVisibility: VisibilityTimeout",
)
_XML = "A message or attribute with a character that XML 1.0 does not have is rejected."
_ADAPTER_ALONE = "No backend rejects it; a test of run_queue checks what the adapter sends."
CHARACTERS_MOTO = Deviation(
    "characters (moto)",
    MOTO,
    aws=_XML,
    here="Every text is accepted.",
    source="SQS API, SendMessage: MessageBody and InvalidMessageContents",
    uncovered=_ADAPTER_ALONE,
)
CHARACTERS_MINISTACK = Deviation(
    "characters (MiniStack)",
    MINISTACK,
    aws=_XML,
    here="Every text is accepted.",
    source="SQS API, SendMessage: MessageBody and InvalidMessageContents",
    uncovered=_ADAPTER_ALONE,
)
REQUEST_TOKENS = Deviation(
    "request tokens",
    MOTO,
    aws="A transaction that is repeated with the same client request token has no effect, and the "
    "answer reports success.",
    here="The token is ignored.",
    source="DynamoDB API, TransactWriteItems: ClientRequestToken",
)
CAPACITY_UNITS = Deviation(
    "capacity units",
    MOTO,
    aws="An answer reports the consumed units, by the size of the items.",
    here="Every answer reports the same number.",
    source="DynamoDB Developer Guide, Read/write capacity mode: capacity unit consumption",
)
WRITES_OF_A_BATCH = Deviation(
    "writes of a batch",
    MOTO,
    aws="BatchWriteItem rejects more than 25 requests.",
    here="It accepts them.",
    source="DynamoDB API, BatchWriteItem: RequestItems",
)
ITEMS_OF_A_TRANSACTION = Deviation(
    "items of a transaction",
    DYNAMODB_LOCAL,
    aws="A transaction with two operations on one item is a ValidationException.",
    here="It evaluates the conditions first, one operation after the other.",
    source="DynamoDB API, TransactWriteItems",
)
PATHS_OF_AN_UPDATE = Deviation(
    "paths of an update",
    MINISTACK,
    aws="An update expression that names a path twice is rejected.",
    here="The last assignment wins.",
    source="DynamoDB API, UpdateItem: UpdateExpression; two document paths overlap",
)

SIGNED_URLS = Deviation(
    "signed URLs",
    MOTO,
    aws="The holder of a signed URL may send only the signed request: that object, those "
    "headers, and a body with that digest.",
    here="Signatures are not checked.",
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
