"""A DynamoDB client whose writes carry who made them, in the same request."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast

from nextfire.domain.change import CHANGED_BY

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NAME, _VALUE = f"#{CHANGED_BY}", f":{CHANGED_BY}"
_SET = f"SET {_NAME} = {_VALUE}, "


def stamped(
    client: DynamoDBClient, *, tables: Collection[str], changed_by: Callable[[], str | None]
) -> DynamoDBClient:
    """*client*, but that each item that it writes to *tables* carries the attribute `changed_by`.

    It is a property of the client, so no store can write without it. Updates that only add to a
    counter are left alone. Items are changed in place: a store that compares what it wrote with
    what it finds compares the attribute too.

    Args:
        client: The SDK's.
        tables: The names of the tables.
        changed_by: The value for the next write; None: no request is being answered.
    """
    return cast("DynamoDBClient", _Stamped(client, tables, changed_by))


class _Stamped:
    def __init__(
        self, client: DynamoDBClient, tables: Collection[str], changed_by: Callable[[], str | None]
    ) -> None:
        self._client = client
        self._tables = tables
        self._changed_by = changed_by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_item(self, **write: Any) -> Any:
        self._stamp(write)
        return self._client.put_item(**write)

    def update_item(self, **write: Any) -> Any:
        self._stamp(write)
        return self._client.update_item(**write)

    def batch_write_item(self, **_: object) -> Any:
        raise NotImplementedError("A batch of writes does not carry who made them: use put_item.")

    def transact_write_items(self, **request: Any) -> Any:
        for write in request["TransactItems"]:
            for kind in write.keys() & {"Put", "Update"}:
                self._stamp(write[kind])
        return self._client.transact_write_items(**request)

    def _stamp(self, write: dict[str, Any]) -> None:
        expression = write.get("UpdateExpression", "")
        counts_only = expression.startswith("ADD ")
        if write["TableName"] not in self._tables or counts_only:
            return
        text = self._changed_by()
        if text is None:
            return
        if "Item" in write:
            write["Item"][CHANGED_BY] = {"S": text}
            return
        if not expression.startswith(_SET):  # else it is written again
            write["UpdateExpression"] = _SET + expression.removeprefix("SET ")
            write.setdefault("ExpressionAttributeNames", {})[_NAME] = CHANGED_BY
        write.setdefault("ExpressionAttributeValues", {})[_VALUE] = {"S": text}
