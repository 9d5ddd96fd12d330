"""The other rows of the table of limits, on a tiny AWS whose clock does not run by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.strict.fake_upstream import (
    QUEUE,
    TABLE,
    FakeUpstream,
    bench,
    call_of,
    code,
    key,
    put,
    times_until,
)
from tests.strict.limits import HIGH_THROUGHPUT, UNVERIFIED, limit
from tests.strict.limits import TABLE as LIMITS
from tests.strict.strictness import RULES, Strictness

THROTTLED = "ThrottlingException"


def test_each_row_has_a_rule_a_source_and_a_date() -> None:
    assert {row.rule for row in LIMITS.values()} == set(RULES) - {"outage"}
    for row in LIMITS.values():
        assert row.source
        assert re.fullmatch(r"20\d\d-\d\d", row.dated) or row.dated == UNVERIFIED


def test_settings_are_read_from_text() -> None:
    read = Strictness.of(["scale=1", "off=lag,latency", "scale=0.05", "outages=s3"])
    assert read == Strictness(
        scale=0.05, off=frozenset({"lag", "latency"}), outages=frozenset({"s3"})
    )
    with pytest.raises(ValueError, match="scales"):
        Strictness.of(["scales=1"])


def test_an_unknown_rule_is_not_switched_off() -> None:
    with pytest.raises(ValueError, match="unknown rules: \\['latancy'\\]"):
        Strictness(off=frozenset({"latancy"}))


def _transaction(count: int, size: int) -> dict[str, Any]:
    puts = [{"Put": put(str(number), text={"S": "x" * size})} for number in range(count)]
    return {"TransactItems": puts}


def _batch(count: int) -> dict[str, Any]:
    return {"RequestItems": {TABLE: [{"PutRequest": {"Item": key(str(n))}} for n in range(count)]}}


def _keys(count: int) -> dict[str, Any]:
    return {"RequestItems": {TABLE: {"Keys": [key(str(n)) for n in range(count)]}}}


def _messages(count: int, size: int) -> dict[str, Any]:
    entries = [{"Id": str(number), "MessageBody": "x" * size} for number in range(count)]
    return {"QueueUrl": QUEUE, "Entries": entries}


_KB = 1024


@pytest.mark.parametrize(
    ("service", "operation", "fits", "too_large", "error"),
    [
        ("dynamodb", "PutItem", put("a", text={"S": "x" * 399 * _KB}),
         put("a", text={"S": "x" * 400 * _KB}), "ValidationException"),
        ("dynamodb", "TransactWriteItems", _transaction(100, 10), _transaction(101, 10),
         "ValidationException"),
        ("dynamodb", "TransactWriteItems", _transaction(10, 399 * _KB),
         _transaction(11, 399 * _KB), "ValidationException"),
        ("dynamodb", "BatchWriteItem", _batch(25), _batch(26), "ValidationException"),
        ("dynamodb", "BatchGetItem", _keys(100), _keys(101), "ValidationException"),
        ("sqs", "SendMessage", {"QueueUrl": QUEUE, "MessageBody": "x" * 1024 * _KB},
         {"QueueUrl": QUEUE, "MessageBody": "x" * (1024 * _KB + 1)}, "InvalidParameterValue"),
        ("sqs", "SendMessageBatch", _messages(4, 256 * _KB), _messages(5, 256 * _KB),
         "AWS.SimpleQueueService.BatchRequestTooLong"),
        ("sqs", "SendMessageBatch", _messages(10, 1), _messages(11, 1),
         "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"),
        ("lambda", "Event", {"x": "x" * 1023 * _KB}, {"x": "x" * 1025 * _KB},
         "RequestTooLargeException"),
        ("lambda", "RequestResponse", {"x": "x" * 5 * _KB * _KB}, {"x": "x" * 6 * _KB * _KB},
         "RequestTooLargeException"),
    ],
)  # fmt: skip
def test_what_is_too_large_is_rejected(
    service: str, operation: str, fits: Any, too_large: Any, error: str
) -> None:
    tested = bench("sizes")
    assert not code(tested.call(service, operation, **fits))
    assert code(tested.call(service, operation, **too_large)) == error
    assert len(tested.upstream.sent) == tested.acted("sizes") == 1


def _message(group: str) -> dict[str, Any]:
    return {"QueueUrl": QUEUE, "MessageBody": "x", "MessageGroupId": group}


def test_a_fifo_queue_takes_300_calls_per_action() -> None:
    tested = bench("fifo-rate", upstream=FakeUpstream(high_throughput=False))
    assert times_until(tested, THROTTLED, "sqs", "SendMessage", **_message("g")) == 300
    batch = {"QueueUrl": QUEUE, "Entries": [{"Id": "1", **_message("g")}]}
    assert code(tested.call("sqs", "SendMessageBatch", **batch)) == THROTTLED
    assert tested.call("sqs", "ReceiveMessage", QueueUrl=QUEUE).ok, "another action"
    standard = {**_message("g"), "QueueUrl": QUEUE.removesuffix(".fifo")}
    assert tested.call("sqs", "SendMessage", **standard).ok, "another kind of queue"
    tested.upstream.at += 1
    assert tested.call("sqs", "SendMessage", **_message("g")).ok


def test_with_high_throughput_each_group_has_its_own_rate() -> None:
    tested = bench("fifo-rate", scale=0.01)
    assert times_until(tested, THROTTLED, "sqs", "SendMessage", **_message("g")) == 3
    entries = [{"Id": group, **_message(group)} for group in ("g", "h")]
    answer = tested.call("sqs", "SendMessageBatch", QueueUrl=QUEUE, Entries=entries).document
    assert [each["Id"] for each in answer["Successful"]] == ["h"]
    assert [(each["Id"], each["Code"]) for each in answer["Failed"]] == [("g", THROTTLED)]
    refused = tested.call("sqs", "SendMessageBatch", QueueUrl=QUEUE, Entries=entries[:1])
    assert code(refused) == THROTTLED


def test_high_throughput_depends_on_the_region() -> None:
    tested = bench("fifo-rate", scale=0.001)
    accepted = times_until(tested, THROTTLED, "sqs", "ReceiveMessage", QueueUrl=QUEUE)
    assert accepted == HIGH_THROUGHPUT["eu-central-1"] * 0.001


def test_a_queue_with_too_many_messages_in_flight_delivers_none() -> None:
    tested = bench("in-flight", scale=20 / limit("fifo-in-flight"))
    receive = {"QueueUrl": QUEUE, "MaxNumberOfMessages": 10}

    def received() -> list[Any]:
        answer = tested.call("sqs", "ReceiveMessage", **receive)
        assert answer.ok
        return [each["ReceiptHandle"] for each in answer.document.get("Messages", [])]

    first, second = received(), received()
    assert (len(first), len(second)) == (10, 10)
    assert received() == []
    entries = [{"Id": "1", "ReceiptHandle": first[0]}]
    tested.call("sqs", "DeleteMessageBatch", QueueUrl=QUEUE, Entries=entries)
    assert len(received()) == 10, "one was deleted"
    assert received() == []
    for receipt in first[1:] + second:
        shorter = {"QueueUrl": QUEUE, "ReceiptHandle": receipt, "VisibilityTimeout": 1}
        tested.call("sqs", "ChangeMessageVisibility", **shorter)
    tested.upstream.at += 2
    assert len(received()) == 10, "19 are visible again"
    tested.upstream.at += 60
    assert len(received()) == 10


def test_a_receive_with_the_same_id_gets_the_same_messages_while_they_are_hidden() -> None:
    tested = bench("receive-ids")

    def received(attempt: str) -> list[Any]:
        request = {"QueueUrl": QUEUE, "VisibilityTimeout": 60, "ReceiveRequestAttemptId": attempt}
        answer = tested.call("sqs", "ReceiveMessage", **request)
        return [code(answer), answer.document.get("Messages")]

    first = received("1")
    assert first[0] == ""
    assert received("1") == first
    assert received("2") != first
    tested.upstream.at += 60
    assert received("1") == ["InvalidParameterValue", None]


def test_the_id_of_a_throttled_receive_is_refused() -> None:
    rate = 1 / HIGH_THROUGHPUT["eu-central-1"]
    tested = bench("receive-ids", "fifo-rate", scale=rate)
    codes = []
    for attempt in ("1", "2", "2"):
        request = {"QueueUrl": QUEUE, "ReceiveRequestAttemptId": attempt}
        codes.append(code(tested.call("sqs", "ReceiveMessage", **request)))
        tested.upstream.at += 1 if len(codes) > 1 else 0
    assert codes == ["", THROTTLED, "InvalidParameterValue"]


def test_the_eleventh_execution_at_a_time_is_throttled() -> None:
    tested = bench("concurrency")
    answers = tested.calls(*[("lambda", "RequestResponse", {})] * 11)
    assert [answer.status for answer in answers] == [200] * 10 + [429]
    assert code(answers[-1]) == "TooManyRequestsException"
    assert tested.call("lambda", "RequestResponse").ok


def test_an_event_may_be_lost() -> None:
    tested = bench("lost-events", lost_event_chance=1)
    assert tested.call("lambda", "Event").status == 202
    assert tested.upstream.sent == []
    assert tested.call("lambda", "RequestResponse").ok


def test_a_call_takes_time_and_some_take_long() -> None:
    tested = bench("latency", latency_ms=4)
    took = []
    for _ in range(2_000):
        before = tested.upstream.at
        tested.call("s3", "GET")
        took.append(tested.upstream.at - before)
    assert 0.003 < sorted(took)[1_000] < 0.005
    assert 0.1 < max(took) < 4
    assert 10 < tested.acted("latency") < 40


@pytest.mark.parametrize("service", ["dynamodb", "sqs", "lambda", "s3"])
def test_some_calls_get_a_server_error_before_or_after_their_effect(service: str) -> None:
    tested = bench("faults", fault_chance=1)
    request = (
        {"TableName": TABLE, "Key": key("a")} if service == "dynamodb" else {"QueueUrl": QUEUE}
    )
    operation = {"dynamodb": "GetItem", "sqs": "ReceiveMessage"}.get(service, "GET")
    assert {tested.call(service, operation, **request).status for _ in range(20)} == {500}
    assert 3 < len(tested.upstream.sent) < 17


def test_some_connections_are_closed_before_or_after_the_effect() -> None:
    tested = bench("resets", reset_chance=1)
    assert all(tested.call("s3", "GET").lost for _ in range(20))
    assert 3 < len(tested.upstream.sent) < 17


def test_a_service_is_down() -> None:
    tested = bench("outage", outages=frozenset({"s3"}))
    assert tested.call("s3", "GET").status == 503
    assert tested.call("ssm", "GET").ok


def test_the_same_seed_makes_the_same_choices() -> None:
    def faults(seed: int, *between: str) -> list[int]:
        tested = bench("faults", fault_chance=0.5, seed=seed)
        found = []
        for _ in range(50):
            found.append(tested.call("s3", "GET").status)
            for other in between:
                tested.call(other, "GET")
        return found

    assert faults(1) == faults(1, "ssm", "sts")
    assert faults(1) != faults(2)


def test_a_rule_that_is_off_does_not_act() -> None:
    tested = bench(fault_chance=1, reset_chance=1, scale=0.001, outages=frozenset({"dynamodb"}))
    for _ in range(20):
        assert tested.call("dynamodb", "PutItem", **put("a")).ok
    assert tested.upstream.at == 1000
    assert tested.proxy.report()["calls"] == {"dynamodb.PutItem": 20}


def test_a_request_that_is_not_of_aws_passes_unchanged() -> None:
    tested = bench(*RULES, fault_chance=1, reset_chance=1)
    tested.call("execute-api", "POST", word="x")
    assert tested.upstream.sent == [call_of("execute-api", "POST", {"word": "x"})]
