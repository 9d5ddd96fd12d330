"""AWS calls are made and judged."""

from __future__ import annotations

import io
import json
import math
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from botocore.exceptions import (  # noqa: TID251 - what the SDK raises
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
)

from nextfire.domain.attempt import MAX_VALUE_BYTES, AttemptOutcome
from nextfire.domain.job import Job
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.ports.targets import AttemptResult
from nextfire.targets.aws import runner
from nextfire.targets.aws.runner import AwsTarget
from tests.builders import a_job, run_key
from tests.callbacks import LONGEST, Control, a_running_run

QUEUE = "https://sqs.eu-central-1.amazonaws.com/111122223333/orders"
SEND = {"QueueUrl": QUEUE, "MessageBody": "hello"}
TOKEN = "0123456789abcdef" * 4
TOKEN_OF_ROLE = "planted-token-8d1f"


class Client:
    """An SDK client and its `Clients`. Responds with `answer`, or raises it."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = {} if answer is None else answer
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.proceed = threading.Event()
        self.proceed.set()

    def client(
        self, job: Any, masker: Any, service: str, region: str | None, timeout: float
    ) -> Any:
        self.asked.append((job.tenant, service, region, timeout))
        masker.add(TOKEN_OF_ROLE)
        return self

    def _make_api_call(self, action: str, parameters: dict[str, Any]) -> Any:
        self.calls.append((action, parameters))
        self.proceed.wait(20)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_call_job(name: str = "sqs:SendMessage", **values: Any) -> Job:
    service, _, action = name.partition(":")
    aws = {"service": service, "action": action, "input": values or SEND}
    return a_job(target={"pool": "calls", "aws": aws}, payload={"n": 3}, timeoutSec=30)


def attempt(
    client: Client, job: Job | None = None, control: Control | None = None
) -> AttemptResult:
    target = AwsTarget(client, ["*"])
    return target.attempt(job or a_call_job(), a_running_run(), control or Control(), LONGEST)


def test_a_call_succeeds_with_the_response_as_its_result() -> None:
    at = datetime(2026, 5, 24, 12, tzinfo=UTC)
    metadata = {"HTTPStatusCode": 200, "RequestId": "r-1"}
    client = Client({"MessageId": "m", "At": at, "B": b"\xff", "ResponseMetadata": metadata})

    found = attempt(client, a_call_job(**SEND | {"MessageBody": "{{payload}} {{run.attempt}}"}))

    assert (found.result.outcome, found.result.reason) == (
        AttemptOutcome.SUCCEEDED,
        "sqs:SendMessage",
    )
    assert json.loads(found.given or b"") == {
        "MessageId": "m",
        "At": "2026-05-24T12:00:00+00:00",
        "B": {"base64": "/w=="},
    }
    record = json.loads(found.result.call or "")
    assert record.pop("durationMs") >= 0
    assert record == {
        "service": "sqs", "action": "SendMessage", "status": 200, "requestId": "r-1",
    }  # fmt: skip
    assert client.calls == [("SendMessage", SEND | {"MessageBody": '{"n":3} 1'})]
    assert client.asked == [("acme", "sqs", None, 30)]


def test_an_executor_without_a_thread_for_a_call_uses_up_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    found = attempt(client)

    assert (found.result.unavailable, client.calls) == (True, [])
    assert found.result.reason == "the executor has no thread for the call"


def test_a_whole_payload_is_given_to_a_text_as_json() -> None:
    client = Client()

    found = attempt(client, a_call_job(**SEND | {"MessageBody": "{{payload}}"}))

    assert found.result.outcome is AttemptOutcome.SUCCEEDED
    assert client.calls[0][1]["MessageBody"] == '{"n":3}'


def test_numbers_that_json_does_not_have_are_null() -> None:
    client = Client({"StatusCode": 200, "Payload": io.BytesIO(b'{"a": NaN, "b": 1e999}')})

    found = attempt(client, a_call_job("lambda:Invoke", FunctionName="f"))

    given = json.loads(found.given or b"", parse_constant=pytest.fail)
    assert given["Payload"] == {"a": None, "b": None}


@pytest.mark.parametrize("levels", [101, 201, 900])
def test_a_payload_that_is_nested_too_deeply_is_text(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    client = Client({"StatusCode": 200, "Payload": io.BytesIO(deep.encode())})

    found = attempt(client, a_call_job("lambda:Invoke", FunctionName="f"))

    assert json.loads(found.given or b"")["Payload"] == deep


def test_numbers_of_the_sdk_that_json_does_not_have_are_null() -> None:
    """The SDK reads the "NaN" of a database as a float, for example of rds-data."""
    client = Client({"records": [[{"doubleValue": float("nan")}, {"doubleValue": -math.inf}]]})

    found = attempt(client)

    given = json.loads(found.given or b"", parse_constant=pytest.fail)
    assert given == {"records": [[{"doubleValue": None}, {"doubleValue": None}]]}


def test_a_function_error_is_a_failure() -> None:
    payload = io.BytesIO(b'{"errorMessage": "no"}')
    client = Client({"StatusCode": 200, "FunctionError": "Unhandled", "Payload": payload})

    found = attempt(client, a_call_job("lambda:Invoke", FunctionName="f"))

    assert found.result.outcome is AttemptOutcome.FAILED
    assert "errorMessage" in found.result.reason


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (
            ClientError(
                {"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, "SendMessage"
            ),
            "AccessDenied: not allowed",
        ),
        (
            ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow"}}, "Send"),
            "ThrottlingException: slow",
        ),
        (ReadTimeoutError(endpoint_url="https://sqs"), "ReadTimeoutError: "),
        (ConnectionClosedError(endpoint_url="https://sqs"), "ConnectionClosedError: "),
    ],
)
def test_an_error_of_aws_is_the_reason(raised: Exception, reason: str) -> None:
    found = attempt(Client(raised))

    assert (found.result.outcome, found.result.permanent) == (AttemptOutcome.FAILED, False)
    assert found.result.reason.startswith(reason)
    assert not found.result.unavailable, "the call may have taken effect"


@pytest.mark.parametrize(
    "raised",
    [
        EndpointConnectionError(endpoint_url="https://sqs"),
        ConnectTimeoutError(endpoint_url="https://sqs"),
        ProxyConnectionError(proxy_url="http://proxy"),
    ],
)
def test_a_call_without_a_connection_is_deferred(raised: Exception) -> None:
    found = attempt(Client(raised))

    assert (found.result.outcome, found.result.unavailable) == (AttemptOutcome.FAILED, True)
    assert found.result.reason.startswith(type(raised).__name__)


@pytest.mark.parametrize(
    "values",
    [
        SEND | {"DelaySeconds": "{{payload}}"},
        SEND | {"MessageBody": "{{payload.absent}}"},
        SEND | {"Nonsense": 1},
    ],
)
def test_parameters_that_do_not_fit_are_a_permanent_failure(values: dict[str, Any]) -> None:
    client = Client()

    found = attempt(client, a_call_job(**values))

    assert (found.result.outcome, found.result.permanent) == (AttemptOutcome.FAILED, True)
    assert client.calls == []


def test_credentials_in_a_response_are_masked() -> None:
    found = attempt(Client({"Echo": "planted-token-8d1f"}))

    assert "planted" not in repr(found)


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "Denied", "Message": "x" * 290 + TOKEN_OF_ROLE}}, "Send"),
        ValueError("x" * 280 + TOKEN_OF_ROLE),
    ],
)
def test_a_part_of_a_credential_is_not_in_a_reason_that_is_cut(error: Exception) -> None:
    assert "planted" not in attempt(Client(error)).result.reason


def test_a_large_response_is_not_kept() -> None:
    found = attempt(Client({"Data": "x" * MAX_VALUE_BYTES}))

    assert found.result.outcome is AttemptOutcome.SUCCEEDED
    assert found.given is None
    assert str(MAX_VALUE_BYTES) in found.result.reason


@pytest.mark.parametrize(
    ("directive", "outcome"),
    [
        (Directive.CANCEL, AttemptOutcome.CANCELLED),
        (Directive.HAND_BACK, AttemptOutcome.HANDED_BACK),
    ],
)
def test_a_call_can_be_abandoned(directive: Directive, outcome: AttemptOutcome) -> None:
    client = Client()
    client.proceed.clear()

    found = attempt(client, control=Control(directive))
    client.proceed.set()

    assert (found.verdict, found.result.outcome) == (directive, outcome)


def test_the_response_to_a_slow_call_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_ASK_EVERY", 0.001)
    client = Client({"MessageId": "m"})
    client.proceed.clear()

    class Asked(Control):
        asked = 0

        def ask(self) -> Directive:
            self.asked += 1
            if self.asked > 3:
                client.proceed.set()
            return Directive.CONTINUE

    assert attempt(client, control=Asked()).given == b'{"MessageId": "m"}'


def test_a_call_that_takes_too_long_times_out() -> None:
    client = Client()
    client.proceed.clear()
    target = AwsTarget(client, ["*"])

    found = target.attempt(a_call_job(), a_running_run(), Control(), timedelta(seconds=0.3))
    client.proceed.set()

    assert found.result.outcome is AttemptOutcome.TIMED_OUT
    assert "may have taken effect" in found.result.reason


def test_attempts_of_an_execution_have_the_same_token() -> None:
    client = Client()
    for _ in range(2):
        attempt(client, a_call_job("stepfunctions:StartExecution", stateMachineArn="arn:a"))

    first, second = (parameters["name"] for _, parameters in client.calls)
    assert first == second
    assert first == str(UUID(first))
    assert run_key().execution_id not in first


EXISTS = ClientError({"Error": {"Code": "ExecutionAlreadyExists"}}, "StartExecution")


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ({}, AttemptOutcome.SUCCEEDED),
        ({"name": "nightly"}, AttemptOutcome.FAILED),
    ],
)
def test_an_execution_that_an_earlier_attempt_started_is_a_success(
    values: dict[str, Any], outcome: AttemptOutcome
) -> None:
    of_aws = {"stateMachineArn": "arn:a", **values}
    aws = {"service": "stepfunctions", "action": "StartExecution", "input": of_aws}

    found = attempt(Client(EXISTS), a_job(target={"pool": "calls", "aws": aws}))

    assert found.result.outcome is outcome
