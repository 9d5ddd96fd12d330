"""Writes of a DynamoDB client that carry who made them, in the same request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from nextfire.domain.change import CHANGED_BY

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NAME, _VALUE = f"#{CHANGED_BY}", f":{CHANGED_BY}"
_SET = f"SET {_NAME} = {_VALUE}, "


def stamp_writes(
    client: DynamoDBClient, *, tables: Collection[str], changed_by: Callable[[], str | None]
) -> None:
    """Have each item that *client* writes to *tables* carry the attribute `changed_by`.

    It is a property of the client, so no store can write without it. Updates that only add to a
    counter are left alone. The parameters are changed in place: a store that compares what it wrote
    with what it finds compares the attribute too.

    Args:
        client: Every store that writes for requests has it.
        tables: The names of the tables.
        changed_by: The value for the next write; None: no request is being answered.
    """
    events = client.meta.events

    def register(operation: str, change: Callable[[dict[str, Any]], None]) -> None:
        def before(params: dict[str, Any], **_: object) -> None:
            change(params)

        events.register(f"before-parameter-build.dynamodb.{operation}", before)

    stamp = partial(_stamp, tables, changed_by)

    def transaction(params: dict[str, Any]) -> None:
        for write in params["TransactItems"]:
            for kind in write.keys() & {"Put", "Update"}:
                stamp(write[kind])

    register("PutItem", stamp)
    register("UpdateItem", stamp)
    register("TransactWriteItems", transaction)


def _stamp(
    tables: Collection[str], changed_by: Callable[[], str | None], write: dict[str, Any]
) -> None:
    expression = write.get("UpdateExpression", "")
    counts_only = expression.startswith("ADD ")
    if write["TableName"] not in tables or counts_only:
        return
    text = changed_by()
    if text is None:
        return
    if "Item" in write:
        write["Item"][CHANGED_BY] = {"S": text}
        return
    if not expression.startswith(_SET):  # else it is sent again
        write["UpdateExpression"] = _SET + expression.removeprefix("SET ")
        write.setdefault("ExpressionAttributeNames", {})[_NAME] = CHANGED_BY
    write.setdefault("ExpressionAttributeValues", {})[_VALUE] = {"S": text}
