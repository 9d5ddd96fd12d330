"""Due entries in DynamoDB, partitioned by minute and shard."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import chunks, concurrently, in_batch, one_by_one
from nextfire.adapters.aws.errors import conditional, translated
from nextfire.adapters.dynamodb.batch_reads import query_pages, read_all
from nextfire.adapters.dynamodb.batch_retries import WRITE_LIMIT
from nextfire.adapters.dynamodb.due_items import (
    ENTRY,
    QUARANTINE_BUCKET,
    decode_entry,
    encode_entry,
    encode_key,
)
from nextfire.adapters.dynamodb.fields import unchanged
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.ids import content_id
from nextfire.domain.instants import isoformat, to_ms

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MAX_SORT_KEY = 1024  # bytes, a limit of DynamoDB


class DynamoDbDueStore:
    """`DueStore` on the table `due`. Batches are written concurrently on *executor*."""

    def __init__(
        self, client: DynamoDBClient, *, table: str, shards: int, executor: Executor
    ) -> None:
        self._client = client
        self._table = table
        self._shards = shards
        self._executor = executor

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#bucket = :bucket",
            "ExpressionAttributeNames": {"#bucket": "bucket"},
            "ExpressionAttributeValues": to_item({":bucket": bucket_name(minute, shard)}),
            "ConsistentRead": consistent,
        }
        if before is not None:
            bound = "#entry < :before" if since is None else "#entry BETWEEN :since AND :before"
            request["KeyConditionExpression"] += f" AND {bound}"
            request["ExpressionAttributeNames"] |= {"#entry": "entry"}
            request["ExpressionAttributeValues"] |= to_item(
                {
                    ":before": f"{to_ms(before):013d}",
                    ":since": None if since is None else f"{to_ms(since):013d}",
                }
            )
        if after is not None:
            request["ExclusiveStartKey"] = encode_key(after)
        if page is not None:
            request["Limit"] = page
        for items in query_pages(self._client, request, "read due entries"):
            yield from map(decode_entry, items)

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        keys = [encode_key(slot) for slot in dict.fromkeys(slots)]
        request = {
            "ConsistentRead": True,
            "ProjectionExpression": "#bucket, #entry",
            "ExpressionAttributeNames": {"#bucket": "bucket", "#entry": "entry"},
        }
        items = read_all(self._client, self._table, keys, request, "check slots")
        return {Slot(item["bucket"]["S"], item["entry"]["S"]) for item in items}

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        slots = [Slot(entry.bucket(now, self._shards), entry.sort_key) for entry in entries]
        # Two entries with the same key are one entry. DynamoDB rejects a batch with duplicate keys.
        stored = self._write({s: _put(e, s) for e, s in zip(entries, slots, strict=True)})
        return {entry for entry, slot in zip(entries, slots, strict=True) if slot in stored}

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        self._write(
            {each.slot: _put(replace(each.entry, held=True), each.slot) for each in entries}
        )

    def delete(self, slots: Collection[Slot]) -> set[Slot]:
        return self._write({slot: {"DeleteRequest": {"Key": encode_key(slot)}} for slot in slots})

    def keep(self, entry: BrokenEntry, now: datetime) -> None:
        item: Item = dict(entry.raw) if isinstance(entry.raw, Mapping) else {}
        item |= to_item(
            {
                "bucket": QUARANTINE_BUCKET,
                "entry": _quarantine_key(entry.slot),
                "error": entry.error,
                "quarantined_at": isoformat(now),
            }
        )
        with translated("quarantine due entry"):
            self._client.put_item(TableName=self._table, Item=item)

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        self.keep(entry, now)
        self._delete_unchanged(entry)

    def _delete_unchanged(self, entry: BrokenEntry) -> None:
        """Delete *entry* unless its slot has changed: a valid entry may have the same key."""
        raw = entry.raw if isinstance(entry.raw, Mapping) else {}
        with conditional("delete broken entry"):
            self._client.delete_item(
                TableName=self._table, Key=encode_key(entry.slot), **unchanged(ENTRY, raw)
            )

    def _write(self, requests: Mapping[Slot, Any]) -> set[Slot]:
        """Write *requests* in concurrent batches. Returns the slots that were written."""

        def one(slot: Slot) -> None:
            request = requests[slot]
            if "PutRequest" in request:
                self._client.put_item(TableName=self._table, **request["PutRequest"])
            else:
                self._client.delete_item(TableName=self._table, **request["DeleteRequest"])

        def batch(slots: list[Slot]) -> list[Slot]:
            answer = self._client.batch_write_item(
                RequestItems={self._table: [requests[slot] for slot in slots]}
            )
            left = {
                _slot_of(request) for request in answer["UnprocessedItems"].get(self._table, [])
            }
            return [slot for slot in slots if slot not in left]

        def write(slots: list[Slot]) -> list[Slot]:
            return one_by_one(slots, one) if len(slots) == 1 else in_batch(slots, batch, one)

        written = concurrently(self._executor, write, chunks([*requests], WRITE_LIMIT))
        return {slot for slots in written for slot in slots}


def _put(entry: DueEntry, slot: Slot) -> dict[str, Any]:
    return {"PutRequest": {"Item": encode_entry(entry, slot)}}


def _quarantine_key(slot: Slot) -> str:
    """The sort key of a quarantined item: readable if it fits, otherwise a hash."""
    key = f"{slot.bucket}/{slot.sort_key}"
    return key if len(key.encode()) <= _MAX_SORT_KEY else f"{slot.bucket}/{content_id(key)}"


def _slot_of(request: Any) -> Slot:
    key = (
        request["PutRequest"]["Item"]
        if "PutRequest" in request
        else request["DeleteRequest"]["Key"]
    )
    return Slot(key["bucket"]["S"], key["entry"]["S"])
