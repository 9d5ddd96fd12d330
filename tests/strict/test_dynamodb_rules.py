"""Capacity, transactions and stale reads, on a tiny AWS whose clock does not run by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.strict.fake_upstream import (
    INDEX,
    TABLE,
    FakeUpstream,
    bench,
    code,
    key,
    put,
    times_until,
)
from tests.strict.limits import limit

THROTTLED = "ThrottlingException"


@pytest.mark.parametrize(
    ("operation", "request_", "row"),
    [
        ("PutItem", put("a"), "partition-write"),
        ("GetItem", {"TableName": TABLE, "Key": key("a")}, "partition-read"),
        (
            "Query",
            {
                "TableName": TABLE,
                "KeyConditionExpression": "#j = :j",
                "ExpressionAttributeNames": {"#j": "job"},
                "ExpressionAttributeValues": {":j": {"S": "a"}},
            },
            "partition-read",
        ),
    ],
)
def test_a_partition_has_its_own_capacity(operation: str, request_: Any, row: str) -> None:
    tested = bench("throughput", scale=0.01)
    accepted = times_until(tested, THROTTLED, "dynamodb", operation, **request_)
    assert accepted == limit(row) * 0.01
    other = "PutItem" if "write" in row else "GetItem"
    names = put("b") if "write" in row else {"TableName": TABLE, "Key": key("b")}
    assert tested.call("dynamodb", other, **names).ok, "another partition"
    tested.upstream.at += 1
    assert tested.call("dynamodb", operation, **request_).ok, "a second later"
    assert tested.acted("throughput") == 1


def test_a_call_is_charged_what_it_cost() -> None:
    tested = bench("throughput", scale=0.01, upstream=FakeUpstream(units=5))
    assert times_until(tested, THROTTLED, "dynamodb", "PutItem", **put("a")) == 2
    assert "ConsumedCapacity" not in tested.call("dynamodb", "PutItem", **put("b")).document


@pytest.mark.parametrize("row", ["new-table-write", "new-table-read"])
def test_a_new_table_has_little_capacity(row: str) -> None:
    tested = bench("throughput", scale=0.01)
    accepted = 0
    for number in range(1_000):
        request = (
            put(f"{number}") if "write" in row else {"TableName": TABLE, "Key": key(str(number))}
        )
        operation = "PutItem" if "write" in row else "GetItem"
        if not tested.call("dynamodb", operation, **request).ok:
            break
        accepted += 1
    assert accepted == limit(row) * 0.01


@pytest.mark.parametrize("operation", ["PutItem", "GetItem"])
def test_a_provisioned_table_saves_the_unused_capacity_of_five_minutes(operation: str) -> None:
    tested = bench("throughput", scale=0.9, upstream=FakeUpstream(provisioned=(2, 2)))
    request = put("a") if operation == "PutItem" else {"TableName": TABLE, "Key": key("a")}
    seconds = []
    for quiet in (1, 10, 300, 3_000):
        accepted = times_until(
            tested, "ProvisionedThroughputExceededException", "dynamodb", operation, **request
        )
        seconds.append(accepted / 2)
        tested.upstream.at += quiet

    assert seconds == [1, 1, 10, limit("burst")], "the capacity itself is not scaled"


def test_what_exceeds_a_provisioned_capacity_stays_in_the_batch() -> None:
    tested = bench("throughput", upstream=FakeUpstream(provisioned=(2, 2)))
    writes = [{"PutRequest": {"Item": key(job)}} for job in "abc"]
    written = tested.call("dynamodb", "BatchWriteItem", RequestItems={TABLE: writes})
    assert written.document["UnprocessedItems"] == {TABLE: writes[2:]}


def test_a_partition_of_an_index_throttles_writes_of_the_table() -> None:
    tested = bench("throughput", scale=0.01)
    for number in range(10):
        assert tested.call("dynamodb", "PutItem", **put(str(number), attention={"S": "t"})).ok
    assert code(tested.call("dynamodb", "PutItem", **put("x", attention={"S": "t"}))) == THROTTLED
    update = {
        "TableName": TABLE,
        "Key": key("y"),
        "UpdateExpression": "SET #a = :a",
        "ExpressionAttributeNames": {"#a": "attention"},
        "ExpressionAttributeValues": {":a": {"S": "t"}},
    }
    assert code(tested.call("dynamodb", "UpdateItem", **update)) == THROTTLED
    assert tested.call("dynamodb", "PutItem", **put("z")).ok
    assert INDEX == "dead"


def test_single_items_of_a_batch_are_throttled() -> None:
    tested = bench("throughput", scale=0.001)  # one unit
    writes = [{"PutRequest": {"Item": key(job)}} for job in ("a", "b", "a")]
    written = tested.call("dynamodb", "BatchWriteItem", RequestItems={TABLE: writes})
    assert written.document["UnprocessedItems"] == {TABLE: [writes[2]]}
    assert set(tested.upstream.items) == {"a", "b"}
    keys = [key("a"), key("b")]
    for _ in range(20):
        asked = {TABLE: {"Keys": keys, "ConsistentRead": True}}
        read = tested.call("dynamodb", "BatchGetItem", RequestItems=asked)
        if code(read) == THROTTLED:
            break
        if unread := read.document["UnprocessedKeys"]:
            assert unread[TABLE]["ConsistentRead"]
            assert len(unread[TABLE]["Keys"]) + len(read.document["Responses"][TABLE]) == 2
    assert tested.acted("throughput") > 1


def test_a_throttled_transaction_is_cancelled_with_a_reason() -> None:
    tested = bench("throughput", scale=0.001)
    actions = [{"Put": put("a")}, {"Put": put("b")}]
    assert tested.call("dynamodb", "PutItem", **put("b")).ok
    refused = tested.call("dynamodb", "TransactWriteItems", TransactItems=actions)
    assert code(refused) == "TransactionCanceledException"
    codes = [reason["Code"] for reason in refused.document["CancellationReasons"]]
    assert codes == ["None", "ThrottlingError"]


def test_of_two_transactions_on_an_item_one_is_cancelled() -> None:
    tested = bench("conflicts")
    first = {"TransactItems": [{"Put": put("a")}, {"Put": put("b")}], "ClientRequestToken": "1"}
    second = {"TransactItems": [{"Put": put("c")}, {"Put": put("b")}], "ClientRequestToken": "2"}
    third = {"TransactItems": [{"Put": put("d")}], "ClientRequestToken": "3"}
    name = ("dynamodb", "TransactWriteItems")
    answers = tested.calls((*name, first), (*name, second), (*name, third), (*name, first))
    assert answers[0].ok
    assert code(answers[1]) == "TransactionCanceledException"
    codes = [reason["Code"] for reason in answers[1].document["CancellationReasons"]]
    assert codes == ["None", "TransactionConflict"]
    assert answers[2].ok
    assert code(answers[3]) == "TransactionInProgressException"
    assert tested.call(*name, **second).ok, "later"


def test_a_transaction_refuses_single_writes_and_items_of_batches() -> None:
    tested = bench("conflicts")
    transaction = {"TransactItems": [{"Put": put("a")}]}
    parts = [{"PutRequest": {"Item": key(job)}} for job in ("a", "b")]
    _, single, batch, read = tested.calls(
        ("dynamodb", "TransactWriteItems", transaction),
        ("dynamodb", "PutItem", put("a")),
        ("dynamodb", "BatchWriteItem", {"RequestItems": {TABLE: parts}}),
        ("dynamodb", "GetItem", {"TableName": TABLE, "Key": key("a")}),
    )
    assert code(single) == "TransactionConflictException"
    assert batch.document["UnprocessedItems"] == {TABLE: parts[:1]}
    assert read.ok


def test_a_read_does_not_see_the_latest_write() -> None:
    tested = bench("lag", lag_chance=1)
    tested.call("dynamodb", "PutItem", **put("a", word={"S": "old"}))
    tested.upstream.at += 2
    tested.call("dynamodb", "PutItem", **put("a", word={"S": "new"}))
    get = {"TableName": TABLE, "Key": key("a")}
    asked = {"RequestItems": {TABLE: {"Keys": [key("a")]}}}

    def words(**more: Any) -> list[str]:
        single = tested.call("dynamodb", "GetItem", **get, **more).document["Item"]
        page = tested.call("dynamodb", "Query", TableName=TABLE, **more).document["Items"][0]
        batch = {"RequestItems": {TABLE: {**asked["RequestItems"][TABLE], **more}}}
        many = tested.call("dynamodb", "BatchGetItem", **batch).document["Responses"][TABLE][0]
        return [each["word"]["S"] for each in (single, page, many)]

    assert words() == ["old"] * 3
    assert words(ConsistentRead=True) == ["new"] * 3
    assert tested.acted("lag") == 3
    tested.upstream.at += 2
    assert words() == ["new"] * 3


def test_a_read_does_not_see_a_new_item_and_still_sees_a_deleted_one() -> None:
    tested = bench("lag", lag_chance=1)
    get = {"TableName": TABLE, "Key": key("a"), "ProjectionExpression": "job"}
    tested.call("dynamodb", "PutItem", **put("a", word={"S": "x"}))
    assert "Item" not in tested.call("dynamodb", "GetItem", **get).document
    assert tested.call("dynamodb", "Query", TableName=TABLE).document["Count"] == 0
    tested.upstream.at += 2
    tested.call("dynamodb", "DeleteItem", TableName=TABLE, Key=key("a"))
    assert tested.call("dynamodb", "GetItem", **get).document["Item"] == key("a")
