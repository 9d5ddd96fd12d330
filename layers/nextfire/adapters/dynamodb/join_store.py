"""Joins in DynamoDB."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import conditional, translated
from nextfire.adapters.dynamodb.batch_reads import read_one
from nextfire.adapters.dynamodb.fields import INTEGER, TEXT
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.run_items import MARKS, expiry, partition
from nextfire.domain.ids import JobKey, RunKey

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
            item = read_one(
                self._client, self._table, _key(run, group), "read join", consistent=True
            )
            found += _marks(item or {})
        return found

    def begin_sequence(self, first: RunKey, most: int, now: datetime) -> bool:
        with conditional("begin sequence") as write:
            self._client.update_item(
                TableName=self._table,
                Key=_sequences(first.job),
                UpdateExpression="SET expires_at = :expires_at ADD marks :marks",
                ConditionExpression="attribute_not_exists(marks) OR size(marks) < :most "
                "OR contains(marks, :mark)",
                ExpressionAttributeValues={
                    ":marks": MARKS.codec.attribute([first.run_id]),
                    ":mark": TEXT.attribute(first.run_id),
                    ":most": INTEGER.attribute(most),
                    ":expires_at": INTEGER.attribute(expiry(now)),
                },
            )
        return write.made

    def begun_sequences(self, job: JobKey) -> Collection[str]:
        item = read_one(
            self._client, self._table, _sequences(job), "read sequences", consistent=True
        )
        return _marks(item or {})

    def end_sequences(self, job: JobKey, first: Collection[str]) -> None:
        with translated("end sequences"):
            self._client.update_item(
                TableName=self._table,
                Key=_sequences(job),
                UpdateExpression="DELETE marks :marks",
                ExpressionAttributeValues={":marks": MARKS.codec.attribute(sorted(first))},
            )


def _key(run: RunKey, group: int) -> Item:
    # A job id has no slash, so no job has this partition.
    return {
        "job": TEXT.attribute(f"{partition(run.job)}/{run.run_id}/join"),
        "run_id": TEXT.attribute(str(group)),
    }


def _sequences(job: JobKey) -> Item:
    return {"job": TEXT.attribute(f"{partition(job)}/sequences"), "run_id": TEXT.attribute("0")}


def _marks(item: Any) -> Collection[str]:
    return [*item["marks"]["SS"]] if "marks" in item else []
