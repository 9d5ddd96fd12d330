"""Watcher leases and cursors in DynamoDB."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from nextfire.adapters.aws import Item, chunks, error_code, from_item, to_item, translated
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.ports import Lease

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_GET_LIMIT = 100  # keys of one BatchGetItem, a limit of DynamoDB
_REFUSED = "ConditionalCheckFailedException"


class DynamoDbControlStore:
    """`ControlStore` on the table `control`: ``lease#<group>`` and ``cursor#<shard>``."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def lease(self, group: int) -> Lease | None:
        with translated("read lease"):
            answer = self._client.get_item(
                TableName=self._table, Key=_lease_key(group), ConsistentRead=True
            )
        return _decode_lease(answer["Item"]) if "Item" in answer else None

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        request: dict[str, Any] = {
            "TableName": self._table,
            "Item": _lease_key(group)
            | to_item(
                {
                    "holder": to.holder,
                    "epoch": to.epoch,
                    "beat": to.beat,
                    "released": to.released or None,
                }
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if was is None:
            request["ConditionExpression"] = "attribute_not_exists(id)"
        else:
            request["ConditionExpression"] = "epoch = :epoch AND beat = :beat"
            request["ExpressionAttributeValues"] = to_item({":epoch": was.epoch, ":beat": was.beat})
        try:
            with translated("replace lease"):
                self._client.put_item(**request)
        except ClientError as error:
            if error_code(error) != _REFUSED:
                raise
            there: Item = error.response.get("Item", {})  # type: ignore[assignment]
            # The SDK may have sent it twice: what was refused then is our own success.
            return bool(there) and _decode_lease(there) == to
        return True

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        for shard in set(range(shards)) - self.cursors(range(shards)).keys():
            self._set_cursor(shard, minute, 0, "attribute_not_exists(id)")

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        found: dict[int, datetime] = {}
        for chunk in chunks([*shards], _GET_LIMIT):
            keys: list[Any] = [_cursor_key(shard) for shard in chunk]
            while keys:
                with translated("read cursors"):
                    answer = self._client.batch_get_item(
                        RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}}
                    )
                for item in answer["Responses"].get(self._table, []):
                    values = from_item(item)
                    found[int(values["id"].partition("#")[2])] = parse_instant(values["minute"])
                left = answer["UnprocessedKeys"].get(self._table)
                keys = list(left["Keys"]) if left else []
        return found

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        return self._set_cursor(shard, minute, epoch, "attribute_not_exists(id) OR epoch <= :epoch")

    def _set_cursor(self, shard: int, minute: datetime, epoch: int, condition: str) -> bool:
        item = _cursor_key(shard) | to_item({"minute": isoformat(minute), "epoch": epoch})
        request: dict[str, Any] = {"TableName": self._table, "Item": item}
        if ":epoch" in condition:
            request["ExpressionAttributeValues"] = to_item({":epoch": epoch})
        try:
            with translated("set cursor"):
                self._client.put_item(ConditionExpression=condition, **request)
        except ClientError as error:
            if error_code(error) == _REFUSED:
                return False
            raise
        return True


def _lease_key(group: int) -> Item:
    return to_item({"id": f"lease#{group}"})


def _cursor_key(shard: int) -> Item:
    return to_item({"id": f"cursor#{shard}"})


def _decode_lease(item: Mapping[str, Any]) -> Lease:
    values = from_item(item)
    return Lease(
        holder=values["holder"],
        epoch=int(values["epoch"]),
        beat=int(values["beat"]),
        released=bool(values.get("released", False)),
    )
