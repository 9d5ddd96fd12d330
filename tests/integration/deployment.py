"""The functions as deployed, on moto: their environment, and the events that AWS sends them."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Lock, local
from typing import Any

import pytest
from aws_lambda_powertools.event_handler.api_gateway import BaseRouter
from aws_lambda_powertools.utilities.typing import LambdaContext

from functions.api import app as resolver
from functions.api import services as api
from functions.api.handler import handler as api_handler
from functions.auditor import handler as auditor
from functions.executor import handler as executor
from functions.watcher import handler as watcher
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from tests.integration import stack_resources
from tests.integration.described import check_against_description
from tests.integration.stack_resources import StackResources

TENANT = stack_resources.TENANT
OTHER_TENANT = "210987654321"
SHARDS = stack_resources.SHARDS
LIMIT = "PT14M"
CALLS = "webhooks"
"""A pool of calls; `default` runs scripts."""


_AT_THE_START = 2  # the executor reads its budget, then decides whether to begin


class Context(LambdaContext):
    """The Lambda context of an invocation. `remaining_ms` may change while it runs; *later_ms* is
    the remaining time after a script has begun.
    """

    def __init__(self, remaining_ms: int = 840_000, *, later_ms: int | None = None) -> None:
        self.remaining_ms = remaining_ms
        self._later_ms = later_ms
        self._asked = 0

    # In Lambda it is an instance method; the library's stub declares a static method.
    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]
        self._asked += 1
        if self._later_ms is not None and self._asked > _AT_THE_START:
            return self._later_ms
        return self.remaining_ms


@dataclass(frozen=True)
class Answer:
    """An answer of the API. `document` is its body, parsed as strict JSON."""

    status: int
    media_type: str
    headers: Mapping[str, str]
    document: dict[str, Any]

    @property
    def fault(self) -> dict[str, str]:
        """The error of a problem document that has exactly one."""
        [fault] = self.document["errors"]
        found: dict[str, str] = fault
        return found


def http_event(
    method: str,
    path: str,
    body: str | None = None,
    *,
    query: Mapping[str, str] | None = None,
    authorizer: Mapping[str, Any] | None = None,
    encoded: bool = False,
) -> dict[str, Any]:
    """An event of API Gateway's HTTP API in payload format 2.0."""
    context: dict[str, Any] = {
        "accountId": TENANT,
        "apiId": "a1b2c3d4e5",
        "domainName": "a1b2c3d4e5.execute-api.us-east-1.amazonaws.com",
        "http": {
            "method": method,
            "path": path,
            "protocol": "HTTP/1.1",
            "sourceIp": "192.0.2.1",
            "userAgent": "test",
        },
        "requestId": "request-1",
        "routeKey": "$default",
        "stage": "$default",
        "time": "24/May/2026:10:00:00 +0000",
        "timeEpoch": 1779616800000,
    }
    if authorizer is not None:
        context["authorizer"] = authorizer
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": context,
        "isBase64Encoded": encoded,
    }
    if query:
        event["queryStringParameters"] = dict(query)
    if body is not None:
        event["body"] = body
    return event


def identity(account: str) -> dict[str, Any]:
    """The authorizer part of a request signed by *account*."""
    user = {"userArn": f"arn:aws:iam::{account}:user/u", "userId": "U", "accessKey": "K"}
    return {"iam": {"accountId": account, "callerId": "U", **user}}


def labelled_key(tenant: str, labels: Mapping[str, str], scopes: str = "admin") -> dict[str, Any]:
    """The authorizer part of a request with a key of *tenant* that is restricted to *labels*."""
    restricted = json.dumps({"scopes": scopes, "cidrs": [], "labels": dict(labels)})
    who = {"tenant": tenant, "keyId": "00000000000000fe"}
    return {"lambda": {**who, "scopes": "", "restricted": restricted}}


def sqs_record(message: Mapping[str, Any]) -> dict[str, Any]:
    """A received message as Lambda's event source mapping passes it on."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:default.fifo",
        "awsRegion": "us-east-1",
    }


@contextmanager
def _set_aside() -> Iterator[None]:
    """Allow another request while one is in flight. The resolver stores the current request,
    because on Lambda each request in flight has its own process.
    """
    held = getattr(BaseRouter, "current_event", None), resolver.app.context
    resolver.app.context = {}
    try:
        yield
    finally:
        resolver.app.context = held[1]
        if held[0] is not None:
            BaseRouter.current_event = held[0]


def request_in_a_process(event: dict[str, Any]) -> dict[str, Any]:
    """The API's answer to *event*; may be called while another request is in flight."""
    with _set_aside():
        return api_handler(event, Context())


def _no_constant(name: str) -> None:
    raise AssertionError(f"the answer contains {name}, which is not valid JSON")


@dataclass
class Deployment(StackResources):
    """One stack: its resources, its functions, and a client's view of both."""

    def configure(self, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
        """Set the functions' environment, and clear what they have cached."""
        pool = {"queueUrl": self.queue_url, "maxTimeout": LIMIT}
        pools = {"default": pool, CALLS: pool | {"targets": "calls"}}
        settings = self.names() | {
            "pools": json.dumps(pools),
            "pool": "default",
            "lease": "PT30S",
            "life": "PT2S",
        }
        for name, value in (settings | more).items():
            monkeypatch.setenv(f"NEXTFIRE_{name.upper()}", value)
        api.own_services.cache_clear()
        watcher._watcher_of.cache_clear()  # noqa: SLF001 — like a new process
        watcher._ports.cache_clear()  # noqa: SLF001
        executor._executor.cache_clear()  # noqa: SLF001
        auditor._auditor.cache_clear()  # noqa: SLF001

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        text: str | bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        tenant: str = TENANT,
        authorizer: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Call the API with *body* as JSON, or with *text* unchanged (bytes: Base64). *authorizer*:
        the gateway's data about the caller; None: *tenant* signed the request.
        """
        encoded = isinstance(text, bytes)
        if isinstance(text, bytes):
            text = base64.b64encode(text).decode()
        elif text is None and body is not None:
            text = json.dumps(body)
        event = http_event(
            method,
            path,
            text,
            query=query,
            authorizer=authorizer or identity(tenant),
            encoded=encoded,
        )
        event["headers"] |= headers or {}
        return self.answer(event)

    def answer(self, event: dict[str, Any]) -> Answer:
        """Pass *event* to the API's handler, and read its answer as API Gateway would."""
        answer = json.loads(json.dumps(request_in_a_process(event)))
        check_against_description(
            event["requestContext"]["http"]["method"],
            event["requestContext"]["http"]["path"],
            answer,
        )
        assert not answer["isBase64Encoded"]
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        document = json.loads(answer["body"], parse_constant=_no_constant)
        assert isinstance(document, dict)
        return Answer(answer["statusCode"], headers["content-type"], headers, document)

    def side_by_side(
        self, monkeypatch: pytest.MonkeyPatch, *calls: Callable[[], Answer]
    ) -> list[Answer]:
        """The answers to concurrent *calls*, as if each had its own process. They switch before and
        after each DynamoDB call, and nowhere else.
        """
        turn, calls_of_moto = Lock(), Lock()
        own = local()

        def step(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            if not getattr(own, "runs", False):
                return real(**request)
            with _set_aside():
                turn.release()
                try:
                    time.sleep(random.random() / 1000)  # noqa: S311 — switches to another call
                    with calls_of_moto:
                        return real(**request)
                finally:
                    turn.acquire()

        def go(call: Callable[[], Answer]) -> Answer:
            with turn:
                own.runs = True
                return call()

        proxy = Proxy(self.database)
        operations = ("get_item", "put_item", "update_item", "query", "transact_write_items")
        proxy.instead = dict.fromkeys(operations, step)
        with monkeypatch.context() as patch:
            patch.setattr("nextfire.wiring.api.dynamodb", lambda: proxy)
            api.own_services.cache_clear()
            api.services()
            with ThreadPoolExecutor(len(calls)) as threads:
                answers = list(threads.map(go, calls))
        api.own_services.cache_clear()
        return answers

    def register(self, **fields: Any) -> Job:
        """Register a job with the API. By default it is due each minute."""
        document = {"type": "CRON", "schedule": "* * * * *", "target": {"handler": "hello"}}
        answer = self.call("POST", "/v1/jobs", document | fields)
        assert answer.status == 201, answer.document
        return self.job(answer.document["jobId"])

    def shown(self, job_id: str) -> dict[str, Any]:
        """What GET shows of the job itself, in the form of the other routes."""
        document = self.call("GET", f"/v1/jobs/{job_id}").document
        return {k: v for k, v in document.items() if k not in {"lastRun", "upcoming"}}

    def execute(
        self, messages: Iterable[Mapping[str, Any]], context: Context | None = None
    ) -> set[str]:
        """Pass *messages* to the executor as one batch. Delete the messages that it did not report,
        as Lambda does. Returns the ids that it reported.
        """
        messages = list(messages)
        event = {"Records": [sqs_record(message) for message in messages]}
        answer = json.loads(json.dumps(executor.handler(event, context or Context())))
        reported = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        for message in messages:
            if message["MessageId"] not in reported:
                self.queues.delete_message(
                    QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"]
                )
        return reported


def message_for(job: Job, at: datetime, dispatch: int = 1) -> RunMessage:
    """The message that dispatches the occurrence of *job* at *at*."""
    return RunMessage.of(job.run_key(at), dispatch, at)


class Proxy:
    """Wraps an SDK client. An operation in `instead` goes to that function, with the real operation
    and the request; all other operations pass through. `calls` lists every operation.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.instead: dict[str, Callable[[Callable[..., Any], dict[str, Any]], Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)

        def call(**request: Any) -> Any:
            self.calls.append((name, request))
            instead = self.instead.get(name)
            return real(**request) if instead is None else instead(real, request)

        return call
