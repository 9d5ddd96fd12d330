"""AWS clients, set up once, and the one place that says what their errors mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from nextfire.domain.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

_log = logging.getLogger(__name__)
_RETRIES: Any = {"total_max_attempts": 3, "mode": "standard"}
# All attempts of one request together stay far below the 30 s for which a watcher still reads a
# bucket whose minute has ended: a due entry's bucket is computed before its request is sent.
_CONFIG = Config(connect_timeout=1, read_timeout=4, retries=_RETRIES, max_pool_connections=32)
_AT_ONCE = _CONFIG.merge(
    Config(connect_timeout=0.5, read_timeout=0.5, retries={"total_max_attempts": 1})
)
_LONG_POLL = Config(connect_timeout=1, read_timeout=25, retries=_RETRIES)

TRANSIENT_CODES = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "KmsThrottled",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
"""The error codes that mean: the same request may succeed later."""

T = TypeVar("T")

_serializer = TypeSerializer()
_deserializer = TypeDeserializer()

Item = dict[str, Any]
"""A DynamoDB item with its type descriptors, as the client speaks it."""


def dynamodb() -> DynamoDBClient:
    return boto3.client("dynamodb", config=_CONFIG)


def dynamodb_at_once() -> DynamoDBClient:
    """For what is left out if it takes long: a request waits for it."""
    return boto3.client("dynamodb", config=_AT_ONCE)


def sqs(*, long_poll: bool = False) -> SQSClient:
    return boto3.client("sqs", config=_LONG_POLL if long_poll else _CONFIG)


def s3() -> S3Client:
    return boto3.client("s3", config=_CONFIG)


def s3_for_others() -> S3Client:
    """Signs URLs for those who have no credentials. They hold the region's own host name: S3 sends
    who asks elsewhere on to it, and a signature is of one host.
    """
    style: Any = {"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"}
    return boto3.client("s3", config=_CONFIG.merge(Config(signature_version="s3v4", s3=style)))


def events() -> EventBridgeClient:
    return boto3.client("events", config=_CONFIG)


def secretsmanager() -> SecretsManagerClient:
    return boto3.client("secretsmanager", config=_CONFIG)


def ssm() -> SSMClient:
    return boto3.client("ssm", config=_CONFIG)


def sts() -> STSClient:
    return boto3.client("sts", config=_CONFIG)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def is_transient(error: ClientError) -> bool:
    """Whether the same request may succeed later."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return error_code(error) in TRANSIENT_CODES or status >= 500  # noqa: PLR2004 — a server error


class ContendedError(UnavailableError):
    """Others wrote the same item in the same moment: nothing was written."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Let a foreign error that may pass by itself out as `UnavailableError`, any other as it is.

    Args:
        what: The request, for the message, e.g. ``"claim run"``.
    """
    try:
        yield
    except ClientError as error:
        if is_transient(error):
            raise UnavailableError(f"{what}: {error_code(error) or error}. Try again.") from error
        raise
    except BotoCoreError as error:
        # Its text may hold an endpoint or a path, which concerns only who reads the log.
        _log.warning("%s: %s: %s", what, type(error).__name__, error)
        raise UnavailableError(f"{what}: {type(error).__name__}. Try again.") from error


def transact(client: DynamoDBClient, writes: list[Any], what: str) -> Item | None:
    """Do all *writes* or none of them; the first alone has a condition, and asks for the old item.

    Returns:
        None if they were done, else the item that refused the first; empty if there is none.
    """
    refused = transact_all(client, writes, what)
    return None if refused is None else refused[1]


def transact_all(client: DynamoDBClient, writes: list[Any], what: str) -> tuple[int, Item] | None:
    """Do all *writes* or none of them.

    Returns:
        None if they were done, else the index of the first whose condition refused it, and the item
        that it asks for; empty if there is none.
    """
    try:
        # The SDK gives each request a token, so that sending it twice writes once.
        with translated(what):
            client.transact_write_items(TransactItems=writes)
    except ClientError as error:
        if error_code(error) != "TransactionCanceledException":
            raise
        reasons: list[Any] = error.response.get("CancellationReasons", [])
        for index, reason in enumerate(reasons):
            if reason.get("Code") == "ConditionalCheckFailed":
                return index, dict(reason.get("Item", {}))
        codes = ", ".join(str(reason.get("Code")) for reason in reasons)
        contended = "TransactionConflict" in codes
        kind = ContendedError if contended else UnavailableError
        raise kind(f"{what}: transaction cancelled ({codes}). Try again.") from error
    return None


def to_item(values: Mapping[str, object]) -> Item:
    """*values* as an item; what is None is left out."""
    return {
        name: _serializer.serialize(value) for name, value in values.items() if value is not None
    }


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of *item*; numbers are Decimal."""
    return {name: _deserializer.deserialize(value) for name, value in item.items()}


def chunks(things: list[T], size: int) -> list[list[T]]:
    return [things[i : i + size] for i in range(0, len(things), size)]


def one_by_one(things: list[T], do: Callable[[T], object]) -> list[T]:
    """Do each of *things* by itself; returns those that went well. A refusal concerns only its
    own.
    """
    done = []
    for thing in things:
        try:
            do(thing)
        except (ClientError, BotoCoreError):
            continue
        done.append(thing)
    return done
