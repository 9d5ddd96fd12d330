"""Behavior of DynamoDB and SQS that the adapters rely on but no port's contract shows.

If a backend accepts more than AWS does, the adapters' own limits are not tested there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from nextfire.adapters.aws.errors import error_code, refused
from tests.integration.backends import (
    CAPACITY_UNITS,
    CHARACTERS_MINISTACK,
    CHARACTERS_MOTO,
    ITEMS_OF_A_TRANSACTION,
    PATHS_OF_AN_UPDATE,
    REQUEST_TOKENS,
    TWELVE_HOURS,
    WRITES_OF_A_BATCH,
    on_dynamodb,
    on_sqs,
)
from tests.integration.tables import Tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

CONTRACT_OF = ()


def refusal(do: Any, **request: Any) -> str:
    """The error code with which *do* rejects *request*."""
    with pytest.raises(refused()) as refusal:
        do(**request)
    return error_code(refusal.value)


def item(number: int, **more: str) -> dict[str, Any]:
    return {name: {"S": text} for name, text in {"id": f"item{number:05d}", **more}.items()}


def new(table: str, number: int, **more: str) -> Any:
    """A write of a transaction: put the item if it does not exist."""
    condition = "attribute_not_exists(id)"
    return {
        "Put": {"TableName": table, "Item": item(number, **more), "ConditionExpression": condition}
    }


def token(tables: Tables) -> str:
    """A token that no other test has sent."""
    return f"token-of-{tables.control}"


@REQUEST_TOKENS.mark
@on_dynamodb
def test_a_transaction_that_is_sent_twice_is_done_once(
    dynamodb: DynamoDBClient, tables: Tables
) -> None:
    """Like an SDK that got no answer and sends the same token again."""
    writes = [new(tables.control, 1), new(tables.control, 2)]
    dynamodb.transact_write_items(TransactItems=writes, ClientRequestToken=token(tables))
    dynamodb.delete_item(TableName=tables.control, Key=item(2))

    dynamodb.transact_write_items(TransactItems=writes, ClientRequestToken=token(tables))

    items = dynamodb.scan(TableName=tables.control, ConsistentRead=True)["Items"]
    assert items == [item(1)]


@REQUEST_TOKENS.mark
@on_dynamodb
def test_a_token_is_of_one_transaction(dynamodb: DynamoDBClient, tables: Tables) -> None:
    dynamodb.transact_write_items(
        TransactItems=[new(tables.control, 1)], ClientRequestToken=token(tables)
    )

    assert (
        refusal(
            dynamodb.transact_write_items,
            TransactItems=[new(tables.control, 2)],
            ClientRequestToken=token(tables),
        )
        == "IdempotentParameterMismatchException"
    )


@ITEMS_OF_A_TRANSACTION.mark
@on_dynamodb
def test_a_transaction_names_an_item_once(dynamodb: DynamoDBClient, tables: Tables) -> None:
    writes = [new(tables.control, 1), new(tables.control, 1, note="other")]

    assert refusal(dynamodb.transact_write_items, TransactItems=writes) == "ValidationException"


@on_dynamodb
@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(range(26), marks=WRITES_OF_A_BATCH.mark, id="too many"),
        pytest.param([1, 1], id="the same one twice"),
    ],
)
def test_a_batch_of_writes_is_refused(
    dynamodb: DynamoDBClient, tables: Tables, numbers: list[int]
) -> None:
    writes = [{"PutRequest": {"Item": item(number)}} for number in numbers]

    code = refusal(dynamodb.batch_write_item, RequestItems={tables.control: writes})

    assert code == "ValidationException"


@on_dynamodb
@pytest.mark.parametrize("numbers", [range(101), [1, 1]], ids=["too many", "one twice"])
def test_a_batch_of_reads_is_refused(
    dynamodb: DynamoDBClient, tables: Tables, numbers: list[int]
) -> None:
    keys = {"Keys": [item(number) for number in numbers]}

    code = refusal(dynamodb.batch_get_item, RequestItems={tables.control: keys})

    assert code == "ValidationException"


@on_dynamodb
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("SET state = :v", id="reserved word"),
        pytest.param(
            "SET #s = :v, #s = :v", marks=PATHS_OF_AN_UPDATE.mark, id="the same path twice"
        ),
    ],
)
def test_an_expression_is_refused(
    dynamodb: DynamoDBClient, tables: Tables, expression: str
) -> None:
    names = {"ExpressionAttributeNames": {"#s": "state"}} if "#s" in expression else {}

    code = refusal(
        dynamodb.update_item,
        TableName=tables.control,
        Key=item(1),
        UpdateExpression=expression,
        ExpressionAttributeValues={":v": {"S": "x"}},
        **names,
    )

    assert code == "ValidationException"


@on_dynamodb
def test_an_item_has_400_kb_at_most(dynamodb: DynamoDBClient, tables: Tables) -> None:
    def text(size: int) -> dict[str, Any]:
        return item(1, text="x" * size)

    dynamodb.put_item(TableName=tables.control, Item=text(390 * 1024))

    code = refusal(dynamodb.put_item, TableName=tables.control, Item=text(400 * 1024))

    assert code == "ValidationException"


@CAPACITY_UNITS.mark
@on_dynamodb
def test_what_requests_cost(dynamodb: DynamoDBClient, tables: Tables) -> None:
    """In capacity units: a write costs 1 per started KB, a read 1/2 per started 4 KB, or 1 if
    consistent; in a transaction twice that.
    """
    table = tables.control

    def units(answer: Any) -> float:
        consumed = answer["ConsumedCapacity"]
        if isinstance(consumed, dict):
            consumed = [consumed]
        return sum(float(each["CapacityUnits"]) for each in consumed)

    def ask(do: Any, **request: Any) -> float:
        return units(do(**request, ReturnConsumedCapacity="TOTAL"))

    large = item(9, text="x" * 1500)
    assert ask(dynamodb.put_item, TableName=table, Item=item(1)) == 1
    assert ask(dynamodb.put_item, TableName=table, Item=large) == 2
    assert ask(dynamodb.get_item, TableName=table, Key=item(1)) == 0.5
    assert ask(dynamodb.get_item, TableName=table, Key=item(1), ConsistentRead=True) == 1
    assert ask(dynamodb.scan, TableName=table) == 0.5
    writes = [new(table, 2), new(table, 3)]
    assert ask(dynamodb.transact_write_items, TransactItems=writes) == 4
    deletes = [{"DeleteRequest": {"Key": item(n)}} for n in (2, 3)]
    assert ask(dynamodb.batch_write_item, RequestItems={table: deletes}) == 2


@on_sqs
def test_a_batch_of_messages_is_refused(sqs: SQSClient, queue_url: str) -> None:
    entries = [
        {"Id": str(n), "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": str(n)}
        for n in range(11)
    ]

    code = refusal(sqs.send_message_batch, QueueUrl=queue_url, Entries=entries)

    assert code in {
        "TooManyEntriesInBatchRequest",
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    }


@CHARACTERS_MOTO.mark
@CHARACTERS_MINISTACK.mark
@on_sqs
@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "a\ufffe"], ids=ascii)
def test_what_xml_cannot_hold_is_refused(sqs: SQSClient, queue_url: str, text: str) -> None:
    attribute = {"failure": {"DataType": "String", "StringValue": text}}

    code = refusal(
        sqs.send_message,
        QueueUrl=queue_url,
        MessageBody="x",
        MessageGroupId="g",
        MessageDeduplicationId="d",
        MessageAttributes=attribute,
    )

    assert code in {"InvalidMessageContents", "InvalidParameterValue"}


@TWELVE_HOURS.mark
@on_sqs
def test_a_message_that_is_hidden_for_more_than_12_hours_is_refused(
    sqs: SQSClient, queue_url: str
) -> None:
    sqs.send_message(
        QueueUrl=queue_url, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="d"
    )
    (message,) = sqs.receive_message(QueueUrl=queue_url)["Messages"]

    code = refusal(
        sqs.change_message_visibility,
        QueueUrl=queue_url,
        ReceiptHandle=message["ReceiptHandle"],
        VisibilityTimeout=43_201,
    )

    assert code == "InvalidParameterValue"
