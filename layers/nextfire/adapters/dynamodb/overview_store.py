"""The segments of the overview in DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import chunks
from nextfire.adapters.aws.errors import conditional, translated
from nextfire.adapters.dynamodb.batch_reads import query_pages, read_one, throttled
from nextfire.adapters.dynamodb.batch_retries import WRITE_LIMIT, retried
from nextfire.adapters.dynamodb.fields import unchanged
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.overview_items import (
    HEAD,
    OVERVIEW_TABLE,
    decode_head,
    decode_segment,
    encode_head,
    encode_key,
    encode_segment,
    partition,
    place,
    snapshot_items,
    snapshot_key,
    unpack,
)
from nextfire.domain.errors import UndecodableError
from nextfire.domain.overview import MAX_STEPS, BrokenHead, Head, Segment, Step
from nextfire.domain.retention import RETENTION

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_FIRST_PAGE = 10
"""Items of the first page of a read: most callers need only the newest."""
_AFTER = "~"
"""Sorts after all ids of segments."""


class DynamoDbSegmentStore:
    """`SegmentStore` on the table `overview`. *kept*: how long an item is kept after its last
    write or, for segments, after its window.
    """

    def __init__(self, client: DynamoDBClient, *, table: str, kept: timedelta = RETENTION) -> None:
        self._client = client
        self._table = table
        self._kept = kept

    def add(self, tenant: str, segments: Sequence[Segment]) -> int:
        found = [encode_segment(tenant, each, self._kept) for each in segments]
        self._write([{"PutRequest": {"Item": item}} for item, _ in found])
        return sum(size for _, size in found)

    def read(
        self, tenant: str, log: str, first_ms: int, last_ms: int, *, newest_first: bool = False
    ) -> Iterator[Segment]:
        if last_ms < first_ms:  # which DynamoDB rejects
            return
        values = {
            ":log": partition(tenant, log),
            ":first": place(first_ms),
            ":last": place(last_ms, _AFTER),
        }
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#log = :log AND #place BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#log": "log", "#place": "place"},
            "ExpressionAttributeValues": to_item(values),
            "ScanIndexForward": not newest_first,
            "ConsistentRead": True,
        }
        if newest_first:
            request["Limit"] = _FIRST_PAGE
        for items in query_pages(self._client, request, "read the overview"):
            for item in items:
                try:
                    yield decode_segment(log, item)
                except UndecodableError:
                    continue  # a rebuild replaces it
            if "Limit" in request:
                request["Limit"] *= 4

    def head(self, tenant: str) -> Head | BrokenHead | None:
        item = read_one(
            self._client, self._table, _head_key(tenant), "read the overview", consistent=True
        )
        if item is None:
            return None
        try:
            return decode_head(item)
        except UndecodableError as error:
            return BrokenHead(item, str(error))

    def snapshot(self, tenant: str, head: Head) -> Sequence[Step] | None:
        steps: list[Step] = []
        for number in range(head.parts):
            key = snapshot_key(tenant, head.snapshot, number)
            item = read_one(self._client, self._table, key, "read the overview", consistent=True)
            try:
                steps += unpack((item or {})["steps"]["B"])
            except (LookupError, UndecodableError):
                return None
        return steps

    def replace_head(
        self, tenant: str, was: Head | BrokenHead | None, to: Head, steps: Sequence[Step]
    ) -> bool:
        parts = chunks([*steps], MAX_STEPS)
        to = replace(to, parts=len(parts))
        items = snapshot_items(tenant, to, parts, self._kept)
        self._write([{"PutRequest": {"Item": item}} for item in items])
        if not self._put_head(tenant, was, to):
            self._forget(tenant, to)
            return False
        if isinstance(was, Head):
            self._forget(tenant, was)
        return True

    def _put_head(self, tenant: str, was: Head | BrokenHead | None, to: Head) -> bool:
        item = encode_head(tenant, to, self._kept)
        with conditional("replace the head of the overview") as write:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **_is_stored(was),
            )
        # The SDK may have sent the request twice: then the first one succeeded.
        return write.made or write.found == item

    def _forget(self, tenant: str, head: Head) -> None:
        """Delete the snapshot of *head*, which is not the stored head."""
        keys = [snapshot_key(tenant, head.snapshot, number) for number in range(head.parts)]
        self._write([{"DeleteRequest": {"Key": key}} for key in keys])

    def _write(self, requests: list[Any]) -> None:
        """Make the writes *requests*; those that are throttled again, as of `retried`.

        Raises:
            UnavailableError: A request failed, or some writes stayed throttled.
        """

        def write(left: list[Any]) -> list[Any]:
            answer = self._client.batch_write_item(RequestItems={self._table: left})
            return answer.get("UnprocessedItems", {}).get(self._table, [])

        for chunk in chunks(requests, WRITE_LIMIT):
            with translated("write the overview"):
                left = retried(write, chunk)
            if left:
                raise throttled("write the overview")


def _is_stored(head: Head | BrokenHead | None) -> dict[str, Any]:
    """The condition that *head* is the stored one."""
    if head is None:
        return {
            "ConditionExpression": "attribute_not_exists(#log)",
            "ExpressionAttributeNames": {"#log": "log"},
        }
    if isinstance(head, Head):
        return {
            "ConditionExpression": "#snapshot = :was",
            "ExpressionAttributeNames": {"#snapshot": "snapshot"},
            "ExpressionAttributeValues": to_item({":was": head.snapshot}),
        }
    return unchanged(OVERVIEW_TABLE, head.stored)


def _head_key(tenant: str) -> Item:
    return encode_key(partition(tenant, HEAD), HEAD)
