"""A DynamoDB client that records the author of each write in the written item."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast

from nextfire.domain.change import CHANGED_BY

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NAME, _VALUE = f"#{CHANGED_BY}", f":{CHANGED_BY}"
_SET = f"SET {_NAME} = {_VALUE}, "


def with_changed_by(
    client: DynamoDBClient, *, tables: Collection[str], changed_by: Callable[[], str | None]
) -> DynamoDBClient:
    """Wrap *client* so that every item written to *tables* carries the attribute `changed_by`.

    The client adds the attribute, so no store can forget it. Updates that only add to a counter are
    left unchanged. Items are modified in place: a store that compares its write with the stored
    item compares the attribute too.

    Args:
        client: The DynamoDB client.
        tables: Names of the tables.
        changed_by: Returns the value for the next write; None if no request is being handled.
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
        raise NotImplementedError("batch_write_item does not support changed_by: use put_item.")

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
        if not expression.startswith(_SET):  # a retried request has it already
            write["UpdateExpression"] = _SET + expression.removeprefix("SET ")
            write.setdefault("ExpressionAttributeNames", {})[_NAME] = CHANGED_BY
        write.setdefault("ExpressionAttributeValues", {})[_VALUE] = {"S": text}
