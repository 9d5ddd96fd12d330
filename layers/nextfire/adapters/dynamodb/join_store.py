"""Joins in DynamoDB."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import translated
from nextfire.adapters.dynamodb.fields import INTEGER, TEXT
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.run_items import MARKS, expiry, partition
from nextfire.domain.ids import RunKey

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbJoinStore:
    """`JoinStore` on the table `runs`: in partitions of their own, which no listing reads."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:
        with translated("add to join"):
            answer = self._client.update_item(
                TableName=self._table,
                Key=_key(run, group),
                UpdateExpression="SET expires_at = :expires_at ADD marks :marks",
                ExpressionAttributeValues={
                    ":marks": MARKS.codec.attribute([mark]),
                    ":expires_at": INTEGER.attribute(expiry(now)),
                },
                ReturnValues="ALL_NEW",
            )
        return _marks(answer["Attributes"])

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        found: list[str] = []
        for group in groups:
            with translated("read join"):
                answer = self._client.get_item(
                    TableName=self._table, Key=_key(run, group), ConsistentRead=True
                )
            found += _marks(answer.get("Item", {}))
        return found


def _key(run: RunKey, group: int) -> Item:
    # A job id has no slash, so no job has this partition.
    return {
        "job": TEXT.attribute(f"{partition(run.job)}/{run.run_id}/join"),
        "run_id": TEXT.attribute(str(group)),
    }


def _marks(item: Any) -> Collection[str]:
    return [*item["marks"]["SS"]] if "marks" in item else []
