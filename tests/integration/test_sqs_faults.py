"""How the run queue handles faults between SQS and either client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from nextfire.adapters.aws import clients
from nextfire.adapters.aws.errors import EXPIRED_CREDENTIALS, refused
from nextfire.adapters.aws.lean.json_client import ClientTimeouts, JsonClient
from nextfire.adapters.sqs.run_queue import SqsInbox, SqsRunQueue
from nextfire.domain.errors import UnavailableError
from nextfire.domain.message import RunMessage
from nextfire.wiring.worker_ports import sqs_inbox
from tests.builders import a_message, run_key
from tests.integration.faulty_server import LOST, Answer, FaultyServer, Request, answer
from tests.integration.test_aws_credentials import Rotating

QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/000000000000/runs.fifo"
EMPTY = answer({})


def sqs_refusal(code: str, former: str | None = None, status: int = 400) -> Answer:
    """An SQS rejection: its current error name, and the name of its former protocol in a header."""
    document = {"__type": f"com.amazonaws.sqs#{code}", "message": "as it is"}
    return answer(document, status, x_amzn_query_error=f"{former or code};Sender")


def accept(request: Request) -> Answer:
    """Accept all entries of the batch."""
    entries = json.loads(request.body)["Entries"]
    return answer({"Successful": [_sent(entry["Id"]) for entry in entries], "Failed": []})


def _sent(entry_id: str) -> dict[str, str]:
    return {"Id": entry_id, "MessageId": "m", "MD5OfMessageBody": "x", "SequenceNumber": "1"}


def _refused(entry_id: str) -> dict[str, object]:
    return {"Id": entry_id, "Code": "InternalError", "SenderFault": False, "Message": "later"}


FAULTS = {
    "lost response": LOST,
    "RequestThrottled": sqs_refusal("RequestThrottled", status=403),
    "ThrottlingException": sqs_refusal("ThrottlingException"),
    "error of the server": sqs_refusal("InternalError", status=500),
    "no service": Answer(b"<html>", 503),
    "half of the body": Answer(EMPTY.body + b" " * 9, headers={"Content-Length": "99"}, keep=False),
}
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def queue(server: FaultyServer) -> Iterator[SqsRunQueue]:  # noqa: ARG001 - it is the endpoint
    with ThreadPoolExecutor(2) as executor:
        yield SqsRunQueue(clients.sqs(), queues={"default": QUEUE_URL}, executor=executor)


def messages(count: int = 3) -> list[tuple[str, RunMessage]]:
    return [("default", a_message(run_key(job_id=f"job-{number}"))) for number in range(count)]


def dedup_ids(request: Request) -> list[str]:
    return [entry["MessageDeduplicationId"] for entry in json.loads(request.body)["Entries"]]


@every_fault
def test_a_passing_fault_is_retried_with_the_same_deduplication_ids(
    server: FaultyServer, queue: SqsRunQueue, fault: Answer | None
) -> None:
    server.script = [fault, fault, accept]

    assert queue.send(messages()) == {0, 1, 2}

    first, *others = [dedup_ids(request) for request in server.requests]
    assert len(set(first)) == 3
    assert others == [first, first]


@every_fault
def test_a_lasting_fault_leaves_the_batch_unsent_after_three_requests(
    server: FaultyServer, queue: SqsRunQueue, fault: Answer | None
) -> None:
    server.script = [fault]

    assert queue.send(messages()) == set()
    assert len(server.requests) == 3


def test_only_accepted_entries_of_a_batch_count_as_sent(
    server: FaultyServer, queue: SqsRunQueue
) -> None:
    server.script = [answer({"Successful": [_sent("0"), _sent("2")], "Failed": [_refused("1")]})]

    assert queue.send(messages()) == {0, 2}
    assert len(server.requests) == 1


def test_a_response_without_successes_counts_nothing_as_sent(
    server: FaultyServer, queue: SqsRunQueue
) -> None:
    server.script = [answer({"Failed": [_refused("0"), _refused("1"), _refused("2")]})]

    assert queue.send(messages()) == set()
    assert len(server.requests) == 1


def test_a_failed_batch_does_not_affect_the_others(
    server: FaultyServer, queue: SqsRunQueue
) -> None:
    def reply(request: Request) -> Answer:
        first = json.loads(request.body)["Entries"][0]["Id"] == "0"
        return sqs_refusal("RequestThrottled", status=403) if first else accept(request)

    server.script = [reply]

    assert queue.send(messages(12)) == {10, 11}


@pytest.mark.parametrize(
    ("code", "former"),
    [
        *((code, code) for code in sorted(EXPIRED_CREDENTIALS)),
        ("UnrecognizedClientException", "InvalidClientTokenId"),
    ],
)
def test_expired_credentials_cost_one_request(
    server: FaultyServer, queue: SqsRunQueue, code: str, former: str
) -> None:
    server.script = [sqs_refusal(code, former, 403)]

    assert queue.send(messages()) == set()
    assert len(server.requests) == 1, "the messages are not sent one by one"
    with pytest.raises(UnavailableError, match=former):
        queue.backlog("default")


def test_a_throttled_key_of_an_encrypted_queue_is_transient(
    server: FaultyServer, queue: SqsRunQueue
) -> None:
    server.script = [sqs_refusal("KmsThrottled", "KMS.ThrottlingException")]

    assert queue.send(messages()) == set()
    sent = [request.headers["x-amz-target"] for request in server.requests]
    assert set(sent) == {"AmazonSQS.SendMessageBatch"}, "the messages are not sent one by one"


def test_a_batch_refused_for_one_entry_is_sent_one_by_one(
    server: FaultyServer, queue: SqsRunQueue
) -> None:
    def reply(request: Request) -> Answer:
        if "Entries" in (document := json.loads(request.body)):
            return sqs_refusal("InvalidMessageContents")
        bad = "job-1" in document["MessageBody"]
        return sqs_refusal("InvalidMessageContents") if bad else answer({"MessageId": "m"})

    server.script = [reply]

    assert queue.send(messages()) == {0, 2}
    assert len(server.requests) == 4


class OneMessage:
    """A FIFO queue that holds one message and honours the ids of receives, as SQS does."""

    def __init__(self) -> None:
        self.received_as: str | None = None
        self.throttled: set[str] = set()

    def receive(self, request: Request) -> Answer:
        attempt = json.loads(request.body)["ReceiveRequestAttemptId"]
        if attempt in self.throttled:
            return sqs_refusal("InvalidParameterValue")
        self.received_as = self.received_as or attempt
        message = {"Body": "b", "ReceiptHandle": "r", "MessageId": "m"}
        return answer({"Messages": [message] if attempt == self.received_as else []})

    def throttle(self, request: Request) -> Answer:
        self.throttled.add(json.loads(request.body)["ReceiveRequestAttemptId"])
        return sqs_refusal("RequestThrottled", status=403)


def receive(inbox: SqsInbox) -> list[str]:
    found = inbox.receive(10, wait=timedelta(), hidden_for=timedelta(seconds=60))
    return [each.message_id for each in found]


@pytest.fixture
def inbox(server: FaultyServer) -> SqsInbox:  # noqa: ARG001 - it is the endpoint
    return sqs_inbox(QUEUE_URL)


NO_RESPONSE = {name: fault for name, fault in FAULTS.items() if "hrottl" not in name}


@pytest.mark.parametrize("fault", NO_RESPONSE.values(), ids=NO_RESPONSE.keys())
@pytest.mark.parametrize("times", [1, 2])
def test_messages_of_a_lost_response_are_received_by_the_next_call(
    server: FaultyServer, inbox: SqsInbox, fault: Answer | None, times: int
) -> None:
    queue = OneMessage()

    def lose(request: Request) -> Answer | None:
        queue.receive(request)
        return fault

    server.script = [*[lose] * times, queue.receive, queue.receive]

    for _ in range(times):
        with pytest.raises(UnavailableError):
            receive(inbox)
    assert receive(inbox) == ["m"]
    assert receive(inbox) == [], "each other receive has a new id"


def test_a_receive_after_a_throttled_one_has_a_new_id(
    server: FaultyServer, inbox: SqsInbox
) -> None:
    queue = OneMessage()
    server.script = [queue.throttle, queue.receive]

    with pytest.raises(UnavailableError):
        receive(inbox)
    assert receive(inbox) == ["m"]


def test_a_receive_after_a_refused_id_has_a_new_one(server: FaultyServer, inbox: SqsInbox) -> None:
    queue = OneMessage()

    def lose(request: Request) -> None:
        queue.throttle(request)

    server.script = [lose, queue.receive]

    with pytest.raises(UnavailableError):
        receive(inbox)
    with pytest.raises(refused(), match="InvalidParameterValue"):
        receive(inbox)
    assert receive(inbox) == ["m"]


@every_fault
def test_a_failed_receive_is_repeated_by_the_next_call_only(
    server: FaultyServer, inbox: SqsInbox, fault: Answer | None
) -> None:
    server.script = [fault]

    with pytest.raises(UnavailableError):
        receive(inbox)
    assert len(server.requests) == 1


@pytest.mark.parametrize("what", ["acknowledge", "hide"])
def test_other_requests_for_received_messages_are_retried_and_wait_less_than_a_poll(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(clients, "_USUAL", ClientTimeouts(connect=1, read=0.1, attempts=3))
    inbox = sqs_inbox(QUEUE_URL)
    silent = Answer(EMPTY.body, sent=0)
    server.script = [OneMessage().receive, silent, LOST, answer({"Successful": [], "Failed": []})]
    [delivery] = inbox.receive(1, wait=timedelta(), hidden_for=timedelta(seconds=60))

    if what == "hide":
        delivery.hide(timedelta(seconds=60))
    else:
        assert inbox.acknowledge([delivery]) == []
    assert len(server.requests) == 4


def test_the_client_asks_for_the_error_codes_of_the_former_protocol(
    server: FaultyServer, inbox: SqsInbox
) -> None:
    """A service that had another protocol adds these codes to its errors for clients that send the
    header (Smithy, `awsQueryCompatible`). The receipt of a message that another executor received
    meanwhile has such a code.
    """

    def expired(request: Request) -> Answer:
        if request.headers.get("x-amzn-query-mode") == "true":
            return sqs_refusal("InvalidParameterValueException", "InvalidParameterValue")
        document = {"__type": "com.amazonaws.sqs#InvalidParameterValueException"}
        return answer(document, 400)

    server.script = [OneMessage().receive, expired]
    [delivery] = inbox.receive(1, wait=timedelta(), hidden_for=timedelta(seconds=60))

    delivery.hide(timedelta(seconds=60))

    assert len(server.requests) == 2


def test_a_connection_closed_while_idle_costs_no_message(
    server: FaultyServer, queue: SqsRunQueue
) -> None:
    def last(request: Request) -> Answer:
        reply = accept(request)
        return Answer(reply.body, headers=reply.headers, keep=False)

    server.script = [last, accept]

    assert queue.send(messages()) == {0, 1, 2}
    assert queue.send(messages()) == {0, 1, 2}
    assert [request.connection for request in server.requests] == [1, 2]


def test_the_lean_client_signs_again_with_refreshed_credentials(server: FaultyServer) -> None:
    server.script = [sqs_refusal("X", "InvalidClientTokenId", 403), EMPTY]
    client = JsonClient("sqs", "AmazonSQS", ClientTimeouts(attempts=1), credentials=Rotating())

    client.call("SendMessageBatch", {})

    assert len(server.requests) == 2
