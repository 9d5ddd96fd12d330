"""How DynamoDB's clients handle faults between them and AWS: an answer, or UnavailableError."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.errors import UnansweredError, error_code, refused
from nextfire.adapters.aws.lean.json_client import ClientTimeouts, JsonClient
from nextfire.adapters.aws.lean.retries import FailureCause, RetryBudget, backoff
from nextfire.domain.errors import UnavailableError
from tests.integration.faulty_server import LOST, Answer, FaultyServer, Request, answer, refusal
from tests.integration.one_read import FOUND, ITEM, get

GARBAGE = Answer(b"<html>", headers={"x-amz-crc32": "1"})
HALF = Answer(FOUND.body, headers=FOUND.headers, sent=5)


FAULTS = {
    "lost response": LOST,
    "connection closed within the body": Answer(
        FOUND.body + b" " * 9, headers={**FOUND.headers, "Content-Length": "99"}, keep=False
    ),
    "throughput exceeded": refusal("ProvisionedThroughputExceededException"),
    "throttled": refusal("ThrottlingException"),
    "error of the server": refusal("InternalServerError", 500),
    "no service": Answer(b"<html>", 503),
    "garbage": GARBAGE,
    "wrong checksum": Answer(FOUND.body, headers={"x-amz-crc32": "1"}),
}
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())


@every_fault
def test_a_fault_that_passes_is_not_noticed(
    server: FaultyServer,
    client: str,  # noqa: ARG001
    fault: Answer | None,
) -> None:
    server.script = [fault, fault, FOUND]

    assert get(clients.dynamodb()) == ITEM
    assert len(server.requests) == 3


@every_fault
def test_a_fault_that_stays_is_unavailable(
    server: FaultyServer, client: str, fault: Answer | None
) -> None:
    server.script = [fault]
    if client == "boto3" and fault is not None and fault.headers.get("x-amz-crc32") == "1":
        pytest.skip("boto3 does not check after its last attempt")

    with pytest.raises(UnavailableError):
        get(clients.dynamodb())

    assert len(server.requests) == 3


def test_a_body_that_does_not_come_is_unavailable(
    server: FaultyServer,
    client: str,  # noqa: ARG001
) -> None:
    server.script = [HALF]

    with pytest.raises(UnavailableError):
        get(clients.dynamodb_fail_fast())

    assert len(server.requests) == 1


def test_what_is_refused_is_not_sent_again(
    server: FaultyServer,
    client: str,  # noqa: ARG001
) -> None:
    server.script = [refusal("ValidationException")]

    with pytest.raises(refused()) as raised:
        get(clients.dynamodb())

    assert error_code(raised.value) == "ValidationException"
    assert len(server.requests) == 1


def test_a_transaction_is_sent_again_with_its_token(
    server: FaultyServer,
    client: str,  # noqa: ARG001
) -> None:
    server.script = [LOST, refusal("TransactionInProgressException"), answer({})]
    database = clients.dynamodb()

    database.transact_write_items(TransactItems=[{"Delete": {"TableName": "t", "Key": ITEM}}])
    database.transact_write_items(TransactItems=[{"Delete": {"TableName": "t", "Key": ITEM}}])

    tokens = [json.loads(request.body)["ClientRequestToken"] for request in server.requests]
    assert len(tokens) == 4
    assert tokens[0] == tokens[1] == tokens[2] != tokens[3]


def test_a_condition_that_the_first_attempt_made_false_is_reported(
    server: FaultyServer,
    client: str,  # noqa: ARG001
) -> None:
    """The write happens once; the store that sent it recognizes its own item."""
    document = {"__type": "x#ConditionalCheckFailedException", "Item": ITEM, "message": "no"}
    server.script = [LOST, answer(document, 400)]

    with pytest.raises(refused()) as raised:
        clients.dynamodb().put_item(
            TableName="t",
            Item=ITEM,
            ConditionExpression="attribute_not_exists(id)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    assert error_code(raised.value) == "ConditionalCheckFailedException"
    assert raised.value.response["Item"] == ITEM


@pytest.mark.usefixtures("client")
def test_reasons_of_a_cancelled_transaction_may_have_members_that_are_null(
    server: FaultyServer,
) -> None:
    reasons = [
        {"Code": "None", "Item": None, "Message": None},
        {"Code": "ConditionalCheckFailed", "Item": None, "Message": "no"},
    ]
    document = {"__type": "x#TransactionCanceledException", "CancellationReasons": reasons}
    server.script = [answer(document, 400)]

    assert clients.transact(clients.dynamodb(), [{}, {}], "write") == (1, {})


@pytest.mark.usefixtures("lean")
def test_a_connection_that_the_server_closed_meanwhile_costs_no_attempt(
    server: FaultyServer,
) -> None:
    server.script = [FOUND, LOST, FOUND]
    database = clients.dynamodb_fail_fast()  # one attempt

    assert get(database) == ITEM
    assert get(database) == ITEM
    assert [request.connection for request in server.requests] == [1, 1, 2]


@pytest.mark.usefixtures("lean")
def test_a_new_connection_that_is_lost_is_an_attempt(server: FaultyServer) -> None:
    server.script = [LOST, FOUND]

    with pytest.raises(UnavailableError):
        get(clients.dynamodb_fail_fast())

    assert len(server.requests) == 1


@pytest.mark.usefixtures("lean")
def test_a_client_in_trouble_stops_repeating(server: FaultyServer) -> None:
    server.script = [LOST]
    client = JsonClient("dynamodb", "X", ClientTimeouts())

    for _ in range(60):
        with pytest.raises(UnansweredError):
            client.call("GetItem", {})

    assert len(server.requests) == 60 + 500 // 5


@pytest.mark.usefixtures("lean")
def test_a_refused_connection_is_lost_and_not_timed_out(server: FaultyServer) -> None:
    """A refused connection costs half as much retry budget as a timeout."""
    server.close()

    with pytest.raises(UnavailableError, match="ConnectionLostError"):
        get(clients.dynamodb_fail_fast())


def test_the_budget_of_repetitions_fills_up_by_successes() -> None:
    budget = RetryBudget()
    timed_out = FailureCause(timed_out=True)
    assert [budget.take(timed_out) for _ in range(51)] == [10] * 50 + [0]

    for _ in range(10):
        budget.put_back(0)

    assert [budget.take(timed_out), budget.take(timed_out)] == [10, 0]
    budget.put_back(10)
    assert budget.take(timed_out) == 10


def test_waiting_has_full_jitter_and_is_short() -> None:
    assert backoff(1, FailureCause(), rand=lambda: 0.0) == 0
    assert [backoff(n, FailureCause(), lambda: 1.0) for n in (1, 2)] == [0.05, 0.1]
    assert [backoff(n, FailureCause(throttled=True), lambda: 1.0) for n in (1, 2)] == [1, 2]


@pytest.mark.usefixtures("lean")
def test_a_client_is_shared_by_32_threads(server: FaultyServer) -> None:
    def echo(request: Request) -> Answer:
        return answer({"Item": json.loads(request.body)["Key"]})

    server.script = [echo]
    database = clients.dynamodb()

    def ask(number: int) -> bool:
        key = {"id": {"S": str(number)}}
        return database.get_item(TableName="t", Key=key)["Item"] == key

    with ThreadPoolExecutor(32) as threads:
        assert all(threads.map(ask, range(1000)))

    assert len(server.connections) <= 32


@pytest.mark.usefixtures("lean")
def test_a_child_process_inherits_no_connection(server: FaultyServer) -> None:
    def inherited() -> str:
        program = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, close_fds=False, capture_output=True, check=True, text=True
        ).stdout

    server.script = [FOUND]
    before = inherited()
    database = clients.dynamodb()
    get(database)

    assert inherited() == before


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize("text", ["\ud800", "ä€😀", "\x00"], ids=ascii)
def test_every_text_arrives_as_boto3_sends_it(server: FaultyServer, text: str) -> None:
    def echo(request: Request) -> Answer:
        return answer({"Item": json.loads(request.body)["Item"]})

    server.script = [echo]
    item: Any = {"id": {"S": text}, "data": {"B": b"\x00\xff"}, "number": {"N": "1"}}

    sent: Any = clients.dynamodb().put_item(TableName="t", Item=item)

    assert sent["Item"] == {**item, "data": {"B": "AP8="}}


def test_an_unknown_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTFIRE_AWS_CLIENT", "boto")

    with pytest.raises(ValueError, match="use lean or boto3"):
        clients.dynamodb()


@pytest.mark.usefixtures("lean")
@pytest.mark.parametrize(
    ("scheme", "line"),
    [
        ("http", "POST http://dynamodb.example/"),
        ("https", "CONNECT dynamodb.example:443"),
    ],
)
def test_a_proxy_is_used(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch, scheme: str, line: str
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv(f"{scheme}_proxy", server.address)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://dynamodb.example")
    server.script = [LOST]

    with pytest.raises(UnavailableError):
        get(clients.dynamodb())

    assert [each.line.rpartition(" ")[0] for each in server.requests] == [line] * 3
