"""AWS clients, and operations that several stores share.

DynamoDB and SQS have two interchangeable clients: the lean client and boto3. All other services use
boto3, which is imported on the first call.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from nextfire.adapters.aws.errors import (
    TransactionConflictError,
    conditional,
    error_code,
    failed,
    is_transient,
    refused,
    require_in_time,
    translated,
    unanswered,
)
from nextfire.adapters.aws.lazily import LazyClient
from nextfire.adapters.aws.lean.client import SQS_HEADERS, LeanClient
from nextfire.adapters.aws.lean.credentials import BotocoreCredentials
from nextfire.adapters.aws.lean.environment import configured_region
from nextfire.adapters.aws.lean.json_client import ClientTimeouts, JsonClient
from nextfire.adapters.dynamodb.items import Item
from nextfire.domain.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

# All attempts of one request together take less than `SEND_WITHIN`.
_USUAL = ClientTimeouts(connect=1, read=4, attempts=3)
_AT_ONCE = ClientTimeouts(connect=0.5, read=0.5, attempts=1)
_LONG_POLL = ClientTimeouts(connect=1, read=25, attempts=1)
_POOL_SIZE = 32
_CLIENT = "NEXTFIRE_AWS_CLIENT"

T = TypeVar("T")
R = TypeVar("R")


def dynamodb() -> DynamoDBClient:
    return _dynamodb(_USUAL)


def dynamodb_fail_fast() -> DynamoDBClient:
    """A client that fails fast, for optional calls that an API request waits for."""
    return _dynamodb(_AT_ONCE)


def _dynamodb(patience: ClientTimeouts) -> DynamoDBClient:
    if not _lean():
        return cast("DynamoDBClient", _of_boto3("dynamodb", patience))
    client = JsonClient("dynamodb", "DynamoDB_20120810", patience)
    return cast("DynamoDBClient", LeanClient(client))


def sqs(*, long_poll: bool = False) -> SQSClient:
    """A client. With *long_poll* it is for receives only, each of which it sends once."""
    patience = _LONG_POLL if long_poll else _USUAL
    if not _lean():
        return cast("SQSClient", _of_boto3("sqs", patience))
    client = JsonClient("sqs", "AmazonSQS", patience, headers=SQS_HEADERS)
    return cast("SQSClient", LeanClient(client))


def s3() -> S3Client:
    return cast("S3Client", _lazy("s3"))


def s3_presigner() -> S3Client:
    """A client that presigns URLs for callers without credentials.

    The URLs contain the regional host name: S3 redirects other host names to it, and a signature is
    valid for one host only.
    """
    style: Any = {"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"}
    return cast("S3Client", _of_boto3("s3", _USUAL, signature_version="s3v4", s3=style))


def events() -> EventBridgeClient:
    return cast("EventBridgeClient", _lazy("events"))


def ecs() -> Any:
    return _lazy("ecs")


def lambda_functions() -> LambdaClient:
    return cast("LambdaClient", _lazy("lambda"))


def secretsmanager() -> SecretsManagerClient:
    return cast("SecretsManagerClient", _lazy("secretsmanager"))


def ssm() -> SSMClient:
    return cast("SSMClient", _lazy("ssm"))


def sts() -> STSClient:
    return cast("STSClient", _lazy("sts"))


def _lean() -> bool:
    """Whether DynamoDB and SQS use the lean client.

    Raises:
        ValueError: The environment variable names neither client.
    """
    name = os.environ.get(_CLIENT, "lean")
    if name not in {"lean", "boto3"}:
        raise ValueError(f"Invalid {_CLIENT} {name!r}: use lean or boto3, for example lean.")
    return name == "lean"


def _lazy(service: str) -> Any:
    return LazyClient(lambda: _of_boto3(service, _USUAL))


def _of_boto3(service: str, patience: ClientTimeouts, **more: Any) -> Any:
    import boto3  # noqa: PLC0415 - the import takes a second
    from botocore.config import Config  # noqa: PLC0415 - the same

    config = Config(
        connect_timeout=patience.connect,
        read_timeout=patience.read,
        retries={"total_max_attempts": patience.attempts, "mode": "standard"},
        max_pool_connections=_POOL_SIZE,
        **more,
    )
    client = boto3.client(cast("Any", service), region_name=configured_region(), config=config)
    session = boto3.DEFAULT_SESSION  # `boto3.client` has made it
    found = session.get_credentials() if session is not None else None
    _prepare(client.meta.events, None if found is None else BotocoreCredentials(found))
    return client


def _prepare(events: Any, credentials: BotocoreCredentials | None) -> None:
    """Let boto3's client raise `TooLateError` and `NoCredentialsError`, as the lean client does. If
    STS refuses to renew the credentials, the error must not look like a refusal of the request,
    which could end a run.
    """
    call = threading.local()

    def begin(**_: object) -> None:
        call.begun_at = time.time()
        if credentials is not None:
            credentials.get()

    def check(**_: object) -> None:
        require_in_time(call.begun_at)

    # Of a client that is prepared twice, the first handlers stay.
    events.register("provide-client-params", begin, unique_id="nextfire begin")
    events.register("before-send", check, unique_id="nextfire check")


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


def transact(client: DynamoDBClient, writes: list[Any], what: str) -> tuple[int, Item] | None:
    """Commit *writes* in one transaction. A Put alone is a PutItem, which takes half the units. If
    the client repeats it after a lost response, the item that fails its condition is its own.

    Returns:
        None if committed; else the index of the first write whose condition failed and the old item
        that this write requests, empty if no item exists.
    """
    if len(writes) == 1 and "Put" in writes[0]:
        return _put_alone(client, writes[0]["Put"], what)
    try:
        # Both clients send a client request token, so a resent request writes only once.
        with translated(what):
            client.transact_write_items(TransactItems=writes)
    except refused() as error:
        if error_code(error) != "TransactionCanceledException":
            raise
        reasons: list[Any] = error.response.get("CancellationReasons", [])
        for index, reason in enumerate(reasons):
            if reason.get("Code") == "ConditionalCheckFailed":
                return index, dict(reason.get("Item") or {})
        codes = ", ".join(str(reason.get("Code")) for reason in reasons)
        contended = "TransactionConflict" in codes
        kind = TransactionConflictError if contended else UnavailableError
        raise kind(f"{what}: transaction cancelled ({codes}). Try again.") from error
    return None


def _put_alone(client: DynamoDBClient, put: Any, what: str) -> tuple[int, Item] | None:
    with conditional(what) as write:
        client.put_item(**put)
    return None if write.made else (0, write.found)


def chunks(things: list[T], size: int) -> list[list[T]]:
    return [things[i : i + size] for i in range(0, len(things), size)]


def concurrently(executor: Executor, do: Callable[[T], R], things: list[T]) -> Iterable[R]:
    """The results of *do* for each of *things*, concurrently. A single one is done in the caller's
    thread: it does not wait for what other callers do.
    """
    return executor.map(do, things) if len(things) > 1 else map(do, things)


def in_batch(
    things: list[T], batch: Callable[[list[T]], list[T]], do: Callable[[T], object]
) -> list[T]:
    """Pass *things* to *batch*, which sends one request; return those that succeeded. If the whole
    request is refused, maybe for one of them, calls *do* for each: that is idempotent.
    """
    try:
        return batch(things)
    except unanswered():
        return []
    except refused() as error:
        # If it is transient, more requests would only add load.
        return [] if is_transient(error) else one_by_one(things, do)


def one_by_one(things: list[T], do: Callable[[T], object]) -> list[T]:
    """Call *do* for each of *things*; return those that succeeded. A failure skips one thing."""
    done = []
    for thing in things:
        try:
            do(thing)
        except failed():
            continue
        done.append(thing)
    return done
