"""Watcher leases, watcher cursors, the audit's state and run quotas in DynamoDB."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import conditional
from nextfire.adapters.dynamodb.batch_reads import read_all, read_one
from nextfire.adapters.dynamodb.control_items import (
    AUDIT,
    CURSOR,
    LAST_EPOCH,
    LEASE,
    TAKEN,
    BrokenAudit,
    BrokenLease,
    Cursor,
    TakenRuns,
    audit_id,
    cursor_id,
    decode_audit,
    decode_cursor,
    decode_lease,
    decode_taken,
    encode_audit,
    encode_cursor,
    encode_id,
    encode_lease,
    encode_taken,
    lease_id,
    taken_id,
)
from nextfire.adapters.dynamodb.fields import Field, unchanged
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.domain.audit_pass import Audit
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import isoformat
from nextfire.domain.ports.control import CLOCK_AHEAD, Lease, cursors_to_set

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TRIES = 8  # attempts of a write that conflicts with other watchers' writes for the same tenant


class DynamoDbControlStore:
    """`ControlStore` on the table `control`: ``lease#<group>``, ``cursor#<shard>``, ``audit``,
    ``audit#<part>``, ``runs#<tenant>``.

    An item that does not decode does not stop a watcher. A broken lease has no holder: a watcher
    that sees it unchanged takes it over. A broken cursor is seeded again, see `seed_cursors`.
    """

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def lease(self, group: int, *, consistent: bool = False) -> Lease | None:
        key = encode_id(lease_id(group))
        item = read_one(self._client, self._table, key, "read lease", consistent=consistent)
        return None if item is None else decode_lease(item)

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        if was is None:
            condition = _unchanged({}, LEASE)
        elif isinstance(was, BrokenLease):
            condition = _unchanged(was.raw, LEASE)
        else:
            condition = {
                "ConditionExpression": "epoch = :epoch AND beat = :beat",
                "ExpressionAttributeValues": to_item({":epoch": was.epoch, ":beat": was.beat}),
            }
        found = self._put("replace lease", encode_id(lease_id(group)) | encode_lease(to), condition)
        # The SDK may have sent the request twice: then the first one succeeded.
        return found is None or (bool(found) and decode_lease(found) == to)

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        items = self._read_cursors(range(shards))
        decoded = {shard: decode_cursor(item) for shard, item in items.items()}
        for shard, cursor in cursors_to_set(decoded, shards, minute).items():
            self._set_cursor(shard, cursor, 0, _unchanged(items.get(shard, {}), CURSOR))

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        decoded = {shard: decode_cursor(i) for shard, i in self._read_cursors(shards).items()}
        return {shard: cursor for shard, cursor in decoded.items() if cursor is not None}

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        # An invalid epoch does not block the write: the holder's value repairs the item. Nor does
        # an absent item, which has no attribute types.
        condition = {
            "ConditionExpression": (
                "NOT attribute_type(epoch, :number) OR epoch <= :epoch OR epoch > :last"
            ),
            "ExpressionAttributeValues": to_item(
                {":epoch": epoch, ":last": LAST_EPOCH, ":number": "N"}
            ),
        }
        return self._set_cursor(shard, minute, epoch, condition)

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        key = encode_id(taken_id(tenant))
        granted = min(wanted, most)
        for _ in range(_TRIES):
            if granted <= 0:
                return 0
            stored = self._add_taken(key, minute, granted, most)
            if stored is None:
                return granted
            taken = decode_taken(stored, minute)
            if taken is not None:
                granted = most - taken  # less than the rejected number
            elif self._start_minute(key, stored, minute, granted):
                return granted
        raise UnavailableError(
            f"Too many concurrent updates of the run count of tenant {tenant!r}. Try again."
        )

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        key = encode_id(taken_id(tenant))
        item = read_one(self._client, self._table, key, "read taken runs", consistent=True)
        return decode_taken(item or {}, minute) or 0

    def _add_taken(self, key: Item, minute: datetime, granted: int, most: int) -> Item | None:
        """Add *granted* to the count if it fits. Returns None, or the item that fails the
        condition.
        """
        with conditional("take runs") as write:
            self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression="SET taken = taken + :granted",
                ConditionExpression=(
                    "attribute_type(#minute, :text) AND attribute_type(taken, :number)"
                    " AND #minute BETWEEN :minute AND :ahead AND taken BETWEEN :none AND :room"
                ),
                ExpressionAttributeNames={"#minute": "minute"},
                ExpressionAttributeValues=to_item(
                    {
                        ":granted": granted,
                        ":minute": isoformat(minute),
                        ":ahead": isoformat(minute + CLOCK_AHEAD),
                        ":none": 0,
                        ":text": "S",
                        ":number": "N",
                        ":room": most - granted,
                    }
                ),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        return None if write.made else write.found

    def _start_minute(self, key: Item, stored: Item, minute: datetime, granted: int) -> bool:
        """Start the count of *minute* at *granted*, replacing the item *stored*. False if it has
        changed.
        """
        item = key | encode_taken(TakenRuns(minute, granted))
        return self._put("take runs", item, _unchanged(stored, TAKEN)) is None

    def audit(self, part: int | None = None) -> Audit | None:
        key = encode_id(audit_id(part))
        item = read_one(self._client, self._table, key, "read audit", consistent=True)
        return None if item is None else decode_audit(item)

    def replace_audit(self, was: Audit | None, to: Audit, part: int | None = None) -> bool:
        item = encode_id(audit_id(part)) | encode_audit(to)
        raw = was.raw if isinstance(was, BrokenAudit) else encode_audit(was) if was else {}
        found = self._put("replace audit", item, _unchanged(raw, AUDIT))
        # The SDK may have sent the request twice: then the first one succeeded.
        return found is None or found == item

    def _read_cursors(self, shards: Collection[int]) -> dict[int, Item]:
        by_id = {cursor_id(shard): shard for shard in shards}
        keys = [*map(encode_id, by_id)]
        request = {"ConsistentRead": True}
        items = read_all(self._client, self._table, keys, request, "read cursors")
        return {by_id[item["id"]["S"]]: dict(item) for item in items}

    def _set_cursor(
        self, shard: int, minute: datetime, epoch: int, condition: Mapping[str, Any]
    ) -> bool:
        item = encode_id(cursor_id(shard)) | encode_cursor(Cursor(minute, epoch))
        return self._put("set cursor", item, condition) is None

    def _put(self, what: str, item: Item, condition: Mapping[str, Any]) -> Item | None:
        """Store *item*. Returns None, or the item that fails the condition."""
        with conditional(what) as write:
            self._client.put_item(
                TableName=self._table,
                Item=item,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **condition,
            )
        return None if write.made else write.found


def _unchanged(item: Item, fields: Iterable[Field[Any]]) -> dict[str, Any]:
    """The condition that *fields* of the stored item are still those of *item*; that no item
    exists if *item* is empty.

    A valid item differs from a broken one in at least one of the fields, so it is not overwritten.
    If several watchers see the same broken item, only the first one repairs it.
    """
    if not item:
        return {"ConditionExpression": "attribute_not_exists(id)"}
    return unchanged(fields, item, "attribute_exists(id)")
