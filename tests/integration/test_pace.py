"""What makes tests on moto faster changes no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import time_machine
from moto.core import utils

from nextfire.adapters.aws import clients
from tests.builders import at
from tests.integration import pace
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(autouse=True)
def accepted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The forms of queries that moto has accepted: none at first."""
    accepted: set[str] = set()
    monkeypatch.setattr(pace, "_accepted", accepted)
    return accepted


def query(
    dynamodb: DynamoDBClient, table: str, bucket: str, *, attribute: str = "bucket", **more: Any
) -> dict[str, Any]:
    answer = dynamodb.query(
        TableName=table,
        KeyConditionExpression="#bucket = :bucket",
        ExpressionAttributeNames={"#bucket": attribute},
        ExpressionAttributeValues={":bucket": {"S": bucket}},
        **more,
    )
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


@pytest.mark.usefixtures("aws")
def test_clients_with_equal_options_are_shared() -> None:
    assert clients.sqs() is clients.sqs()
    assert clients.sqs() is not clients.sqs(long_poll=True)
    assert clients.dynamodb() is not clients.dynamodb_fail_fast()


def test_an_empty_partition_has_motos_answer(
    dynamodb: DynamoDBClient, tables: Tables, accepted: set[str]
) -> None:
    of_moto = query(dynamodb, tables.due, "a")
    assert len(accepted) == 1
    assert query(dynamodb, tables.due, "b") == of_moto
    assert len(accepted) == 1


def test_items_are_found_as_long_as_they_are_there(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    key: Any = {"bucket": {"S": "a"}, "entry": {"S": "1"}}
    query(dynamodb, tables.due, "a")
    dynamodb.put_item(TableName=tables.due, Item=key)
    assert query(dynamodb, tables.due, "a")["Items"] == [key]
    dynamodb.delete_item(TableName=tables.due, Key=key)
    assert query(dynamodb, tables.due, "a")["Items"] == []


def test_what_moto_refuses_is_refused_each_time(dynamodb: DynamoDBClient, tables: Tables) -> None:
    for _ in range(2):
        with pytest.raises(dynamodb.exceptions.ClientError, match="ValidationException"):
            query(dynamodb, tables.due, "a", attribute="entry")
        with pytest.raises(dynamodb.exceptions.ResourceNotFoundException):
            query(dynamodb, "absent", "a")


def test_capacity_units_are_motos(dynamodb: DynamoDBClient, tables: Tables) -> None:
    for _ in range(2):
        answer = query(dynamodb, tables.due, "a", ReturnConsumedCapacity="TOTAL")
        assert "ConsumedCapacity" in answer


def test_the_time_of_queues_is_motos() -> None:
    with time_machine.travel(at("12:00:00.123456"), tick=False):
        assert int(pace._unix_time() * 1000) == int(utils.unix_time_millis())  # noqa: SLF001


def test_an_unsigned_request_reaches_the_account_of_its_access_key(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    sent: list[bytes] = []

    def note(request: Any, **_: Any) -> None:
        sent.append(request.headers["Authorization"])

    key: Any = {"bucket": {"S": "a"}, "entry": {"S": "1"}}
    dynamodb.meta.events.register_first("before-send.dynamodb", note)
    try:
        dynamodb.put_item(TableName=tables.due, Item=key)
    finally:
        dynamodb.meta.events.unregister("before-send.dynamodb", note)

    assert dynamodb.get_item(TableName=tables.due, Key=key)["Item"] == key
    [authorization] = sent
    assert b"Credential=FOOBARKEY/" in authorization
    assert authorization.endswith(b"Signature=0")
