"""Processes that call AWS by the SDK, and may die at any of their calls.

botocore's hooks see each call, so every call of the SDK counts, wherever it is made.
"""

from __future__ import annotations

import json
import sys
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import (  # noqa: TID251 — what the hooks receive
    AWSPreparedRequest,
    AWSResponse,
)
from botocore.exceptions import ReadTimeoutError  # noqa: TID251 — what the SDK raises
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import botocore_stubber

from nextfire.adapters.aws import clients
from tests.crashes.fates import Call, Fate
from tests.fakes import Killed

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

    from tests.crashes.cloud import Cloud


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_THROTTLED = b'{"__type": "ThrottlingException", "message": "Rate exceeded"}'
_THROTTLED_QUERY = b"""<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code>
<Message>Rate exceeded</Message></Error></ErrorResponse>"""
_PARTS = {
    "BatchWriteItem": "RequestItems",
    "SendMessageBatch": "Entries",
    "DeleteMessageBatch": "Entries",
    "ChangeMessageVisibilityBatch": "Entries",
    "PutEvents": "Entries",
}
"""The calls whose parts AWS handles one by one, with the key of the parts in the request."""
_ADAPTERS = str(Path(clients.__file__).parents[1])


class Process:
    """A process with its own SDK clients. Once it is dead, none of its calls reaches AWS from any
    `except`, `finally` or thread.

    *counted*: its calls count, so it may die.
    """

    def __init__(self, cloud: Cloud, what: str, *, counted: bool = True) -> None:
        self.dead = False
        self.what = what
        self._cloud = cloud
        self._counted = counted
        self._call = threading.local()  # a thread makes one call at a time

    @cached_property
    def dynamodb(self) -> DynamoDBClient:
        return self._cloud.client(clients.dynamodb, self)

    @cached_property
    def sqs(self) -> SQSClient:
        return self._cloud.client(clients.sqs, self)

    @cached_property
    def s3(self) -> S3Client:
        return self._cloud.client(clients.s3, self)

    @cached_property
    def events(self) -> EventBridgeClient:
        return self._cloud.client(clients.events, self)

    @cached_property
    def secrets(self) -> SecretsManagerClient:
        return self._cloud.client(clients.secretsmanager, self)

    @cached_property
    def parameters(self) -> SSMClient:
        return self._cloud.client(clients.ssm, self)

    @cached_property
    def sts(self) -> STSClient:
        return self._cloud.client(clients.sts, self)

    def begin(self, model: Any, params: Any, **_: object) -> None:
        """The SDK begins a call: a request, and possibly its retries."""
        if self.dead:
            raise Killed
        point = None
        if self._counted:
            parts = len(_parts(model.name, params["body"])[1]) if model.name in _PARTS else 1
            point = self._cloud.count(Call(model.name, self.what, parts, _site()))
        self._call.name = model.name
        self._call.point = point
        self._call.fate = None if point is None else point.fate
        self._call.sent = 0
        if self._call.fate is Fate.BEFORE:
            self._die()

    def send(self, event_name: str, request: AWSPreparedRequest, **_: object) -> Any:
        """The SDK sends a request. Returns the answer."""
        if self.dead:
            raise Killed
        self._call.sent += 1
        match self._call.fate:
            case Fate.AFTER:
                botocore_stubber(event_name, request)
                self._die()
            case Fate.PART:
                _leave_out(self._call.point.part, self._call.name, request)
                botocore_stubber(event_name, request)
                self._die()
            case Fate.LOST:
                botocore_stubber(event_name, request)
                raise ReadTimeoutError(endpoint_url=request.url)
            case Fate.REPEATED if self._call.sent == 1:
                botocore_stubber(event_name, request)
                raise ReadTimeoutError(endpoint_url=request.url)
            case Fate.REFUSED:
                return _refusal(request)
        return botocore_stubber(event_name, request)

    def end(self, **_: object) -> None:
        """The SDK has received the answer."""
        if self._counted and self._call.fate is None:
            self._cloud.done()

    def _die(self) -> None:
        self.dead = True
        self._cloud.killed(self.what)
        raise Killed


class PooledClient:
    """An SDK client, used by one process after the other."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.process: Process | None = None
        hooks = client.meta.events
        hooks.register_first("before-call", self._begin)
        # The SDK calls all handlers, even after one has answered.
        hooks.unregister("before-send", botocore_stubber)
        hooks.register_first("before-send", self._send)
        hooks.register_last("after-call", self._end)

    def _begin(self, **call: Any) -> None:
        self._process.begin(**call)

    def _send(self, **call: Any) -> Any:
        return self._process.send(**call)

    def _end(self, **call: Any) -> None:
        self._process.end(**call)

    @property
    def _process(self) -> Process:
        assert self.process is not None
        return self.process


def _refusal(request: AWSPreparedRequest) -> AWSResponse:
    if ".s3." in str(request.url) or "//s3." in str(request.url):
        return _answer(request, 503, "application/xml", _SLOW_DOWN)
    if "//sts." in str(request.url):
        return _answer(request, 400, "text/xml", _THROTTLED_QUERY)
    return _answer(request, 400, "application/x-amz-json-1.0", _THROTTLED)


def _answer(request: AWSPreparedRequest, status: int, kind: str, body: bytes) -> AWSResponse:
    headers = {"content-type": kind}
    return AWSResponse(request.url, status, headers, MockRawResponse(body))  # type: ignore[arg-type]


def _parts(name: str, body: Any) -> tuple[dict[str, Any], list[tuple[list[Any], int]]]:
    """The batch in *body*, and the positions of its parts: lists with an index."""
    document = json.loads(body)
    batch = document[_PARTS[name]]
    lists = list(batch.values()) if isinstance(batch, dict) else [batch]
    return document, [(each, index) for each in lists for index in range(len(each))]


def _leave_out(part: int, name: str, request: AWSPreparedRequest) -> None:
    document, parts = _parts(name, request.body)
    items, index = parts[part]
    del items[index]
    if isinstance(batch := document[_PARTS[name]], dict):
        document[_PARTS[name]] = {table: writes for table, writes in batch.items() if writes}
    request.body = json.dumps(document).encode()
    request.headers["Content-Length"] = str(len(request.body))


def _site() -> str:
    """The adapter's innermost function that makes the call."""
    frame = sys._getframe()  # noqa: SLF001 — a traceback per call takes far longer
    while frame is not None:
        path, _, name = frame.f_code.co_filename.rpartition("/")
        if path.rpartition("/")[0] == _ADAPTERS:
            return f"{name.removesuffix('.py')}.{frame.f_code.co_qualname}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
