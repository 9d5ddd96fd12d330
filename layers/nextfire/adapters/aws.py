"""AWS clients, set up once, and what several stores do with them.

DynamoDB and SQS have two clients of the same methods: the lean one, and boto3's. All other services
have boto3's, which is imported when the first call needs it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from nextfire.adapters.aws_errors import (
    ContendedError,
    error_code,
    failed,
    refused,
    translated,
)
from nextfire.adapters.items import Item
from nextfire.adapters.lazily import Lazily
from nextfire.adapters.lean.dynamodb import LeanDynamoDb
from nextfire.adapters.lean.json_client import JsonClient, Patience
from nextfire.adapters.lean.sqs import LeanSqs
from nextfire.domain.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

# All attempts of one request together stay far below the 30 s for which a watcher still reads a
# bucket whose minute has ended: a due entry's bucket is computed before its request is sent.
_USUAL = Patience(connect=1, read=4, attempts=3)
_AT_ONCE = Patience(connect=0.5, read=0.5, attempts=1)
_LONG_POLL = Patience(connect=1, read=25, attempts=3)
_POOL_SIZE = 32
_CLIENT = "NEXTFIRE_AWS_CLIENT"

T = TypeVar("T")


def dynamodb() -> DynamoDBClient:
    return _dynamodb(_USUAL)


def dynamodb_at_once() -> DynamoDBClient:
    """For what is left out if it takes long: a request waits for it."""
    return _dynamodb(_AT_ONCE)


def _dynamodb(patience: Patience) -> DynamoDBClient:
    if not _lean():
        return cast("DynamoDBClient", _of_boto3("dynamodb", patience))
    client = JsonClient("dynamodb", "DynamoDB_20120810", patience)
    return cast("DynamoDBClient", LeanDynamoDb(client))


def sqs(*, long_poll: bool = False) -> SQSClient:
    patience = _LONG_POLL if long_poll else _USUAL
    if not _lean():
        return cast("SQSClient", _of_boto3("sqs", patience))
    return cast("SQSClient", LeanSqs(JsonClient("sqs", "AmazonSQS", patience)))


def s3() -> S3Client:
    return cast("S3Client", _lazy("s3"))


def s3_for_others() -> S3Client:
    """Signs URLs for those who have no credentials. They hold the region's own host name: S3 sends
    who asks elsewhere on to it, and a signature is of one host.
    """
    style: Any = {"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"}
    return cast("S3Client", _of_boto3("s3", _USUAL, signature_version="s3v4", s3=style))


def events() -> EventBridgeClient:
    return cast("EventBridgeClient", _lazy("events"))


def secretsmanager() -> SecretsManagerClient:
    return cast("SecretsManagerClient", _lazy("secretsmanager"))


def ssm() -> SSMClient:
    return cast("SSMClient", _lazy("ssm"))


def sts() -> STSClient:
    return cast("STSClient", _lazy("sts"))


def _lean() -> bool:
    """Whether DynamoDB and SQS are called by the lean client.

    Raises:
        ValueError: The environment names neither client.
    """
    name = os.environ.get(_CLIENT, "lean")
    if name not in {"lean", "boto3"}:
        raise ValueError(f"Invalid {_CLIENT} {name!r}: use lean or boto3, for example lean.")
    return name == "lean"


def _lazy(service: str) -> Any:
    return Lazily(lambda: _of_boto3(service, _USUAL))


def _of_boto3(service: str, patience: Patience, **more: Any) -> Any:
    import boto3  # noqa: PLC0415 - takes a second
    from botocore.config import Config  # noqa: PLC0415 - as boto3

    config = Config(
        connect_timeout=patience.connect,
        read_timeout=patience.read,
        retries={"total_max_attempts": patience.attempts, "mode": "standard"},
        max_pool_connections=_POOL_SIZE,
        **more,
    )
    return boto3.client(cast("Any", service), config=config)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


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
        # Either client gives each request a token, so that sending it twice writes once.
        with translated(what):
            client.transact_write_items(TransactItems=writes)
    except refused() as error:
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
        except failed():
            continue
        done.append(thing)
    return done
