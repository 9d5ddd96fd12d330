"""Watcher leases, watcher cursors, the audit's state and run quotas in DynamoDB."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws import chunks
from nextfire.adapters.aws_errors import error_code, refused, translated
from nextfire.adapters.items import Item, from_item, to_item
from nextfire.domain.audit import Audit
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import floor_minute, isoformat, parse_instant, to_ms
from nextfire.domain.ports import Lease

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_GET_LIMIT = 100  # keys of one BatchGetItem, a limit of DynamoDB
_REFUSED = "ConditionalCheckFailedException"
_LEASE_FIELDS = ("holder", "epoch", "beat", "released")
_CURSOR_FIELDS = ("minute", "epoch")
_AUDIT_KEY: Item = {"id": {"S": "audit"}}
_AUDIT_FIELDS = ("started_at", "since", "tenant", "job_id", "done")
_MIN_INSTANT, _END = datetime(1970, 1, 2, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_LAST_EPOCH = to_ms(_END)
"""Upper bound of epochs. No watcher writes a higher number."""
_TAKEN_FIELDS = ("minute", "taken")
_TRIES = 8  # attempts of a write that conflicts with other watchers' writes for the same tenant
_CLOCK_SKEW = timedelta(minutes=1)
_SET_BACK = timedelta(days=1)
_AHEAD = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _BrokenLease(Lease):
    """An item that does not decode as a lease. Its heartbeat is stale while `raw` is unchanged.

    It is replaced on condition that the item is still `raw`.
    """

    raw: Item = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _BrokenAudit(Audit):
    """An item that does not decode as an audit.

    It counts as an audit that ended long ago, so the next one is due and starts from the beginning.
    It is replaced on condition that the item is still `raw`.
    """

    raw: Item = field(default_factory=dict)


class DynamoDbControlStore:
    """`ControlStore` on the table `control`: ``lease#<group>``, ``cursor#<shard>``, ``audit``,
    ``runs#<tenant>``.

    An item that does not decode does not stop a watcher. A broken lease has no holder: a watcher
    that sees it unchanged takes it over. A broken cursor is seeded again, see `seed_cursors`.
    """

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def lease(self, group: int) -> Lease | None:
        with translated("read lease"):
            answer = self._client.get_item(TableName=self._table, Key=_lease_key(group))
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
        elif isinstance(was, _BrokenLease):
            request |= _unchanged(was.raw, _LEASE_FIELDS)
        else:
            request["ConditionExpression"] = "epoch = :epoch AND beat = :beat"
            request["ExpressionAttributeValues"] = to_item({":epoch": was.epoch, ":beat": was.beat})
        try:
            with translated("replace lease"):
                self._client.put_item(**request)
        except refused() as error:
            if error_code(error) != _REFUSED:
                raise
            there: Item = error.response.get("Item", {})
            # The SDK may have sent the request twice: then the first one succeeded.
            return bool(there) and _decode_lease(there) == to
        return True

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        """Set missing cursors of the shards below *shards* to *minute*.

        A cursor is broken if it does not decode, or if it is more than an hour after *minute* (then
        new entries would never be read). A broken cursor is set to one day before *minute*, or to
        one day before the earliest of the other cursors if that is earlier. The lost value is
        unknown, and everything after it must be read again. Cursors stay within minutes of each
        other, so the other cursors show a long outage; the day covers the loss of all cursors at
        once. A value that is too early costs reads of empty buckets, 60 per poll in addition to the
        current ones; a value that is too late would lose runs.
        """
        items = self._read_cursors(range(shards))
        decoded = {shard: _decode_cursor(item) for shard, item in items.items()}
        sound = {
            shard: cursor
            for shard, cursor in decoded.items()
            if cursor is not None and cursor <= minute + _AHEAD
        }
        back = max(min([minute, *sound.values()]) - _SET_BACK, _MIN_INSTANT)
        for shard in set(range(shards)) - sound.keys():
            if shard in items:
                self._set_cursor(shard, back, 0, _unchanged(items[shard], _CURSOR_FIELDS))
            else:
                absent = {"ConditionExpression": "attribute_not_exists(id)"}
                self._set_cursor(shard, minute, 0, absent)

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        decoded = {shard: _decode_cursor(i) for shard, i in self._read_cursors(shards).items()}
        return {shard: cursor for shard, cursor in decoded.items() if cursor is not None}

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        # An invalid epoch does not block the write: the holder's value repairs the item. Nor does
        # an absent item, which has no attribute types.
        condition = {
            "ConditionExpression": (
                "NOT attribute_type(epoch, :number) OR epoch <= :epoch OR epoch > :last"
            ),
            "ExpressionAttributeValues": to_item(
                {":epoch": epoch, ":last": _LAST_EPOCH, ":number": "N"}
            ),
        }
        return self._set_cursor(shard, minute, epoch, condition)

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        key = to_item({"id": f"runs#{tenant}"})
        granted = min(wanted, most)
        for _ in range(_TRIES):
            if granted <= 0:
                return 0
            there = self._add_taken(key, minute, granted, most)
            if there is None:
                return granted
            taken = _decode_taken(there, minute)
            if taken is not None:
                granted = most - taken  # less than the rejected number
            elif self._start_minute(key, there, minute, granted):
                return granted
        raise UnavailableError(
            f"Too many concurrent updates of the run count of tenant {tenant!r}. Try again."
        )

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        with translated("read taken runs"):
            answer = self._client.get_item(
                TableName=self._table,
                Key=to_item({"id": f"runs#{tenant}"}),
                ConsistentRead=True,
            )
        return _decode_taken(answer.get("Item", {}), minute) or 0

    def _add_taken(self, key: Item, minute: datetime, granted: int, most: int) -> Item | None:
        """Add *granted* to the count if it fits. Returns None, or the item that fails the
        condition.
        """
        try:
            with translated("take runs"):
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
                            ":ahead": isoformat(minute + _CLOCK_SKEW),
                            ":none": 0,
                            ":text": "S",
                            ":number": "N",
                            ":room": most - granted,
                        }
                    ),
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except refused() as error:
            if error_code(error) != _REFUSED:
                raise
            return dict(error.response.get("Item", {}))
        return None

    def _start_minute(self, key: Item, there: Item, minute: datetime, granted: int) -> bool:
        """Start the count of *minute* at *granted*, replacing the item *there*. False if it has
        changed.
        """
        condition = (
            _unchanged(there, _TAKEN_FIELDS)
            if there
            else {"ConditionExpression": "attribute_not_exists(id)"}
        )
        item = key | to_item({"minute": isoformat(minute), "taken": granted})
        try:
            with translated("take runs"):
                self._client.put_item(TableName=self._table, Item=item, **condition)
        except refused() as error:
            if error_code(error) == _REFUSED:
                return False
            raise
        return True

    def audit(self) -> Audit | None:
        with translated("read audit"):
            answer = self._client.get_item(
                TableName=self._table, Key=_AUDIT_KEY, ConsistentRead=True
            )
        return _decode_audit(answer["Item"]) if "Item" in answer else None

    def replace_audit(self, was: Audit | None, to: Audit) -> bool:
        request: dict[str, Any] = {
            "TableName": self._table,
            "Item": _encode_audit(to),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if was is None:
            request["ConditionExpression"] = "attribute_not_exists(id)"
        else:
            raw = was.raw if isinstance(was, _BrokenAudit) else _encode_audit(was)
            request |= _unchanged(raw, _AUDIT_FIELDS)
        try:
            with translated("replace audit"):
                self._client.put_item(**request)
        except refused() as error:
            if error_code(error) != _REFUSED:
                raise
            # The SDK may have sent the request twice: then the first one succeeded.
            return bool(error.response.get("Item") == request["Item"])
        return True

    def _read_cursors(self, shards: Collection[int]) -> dict[int, Item]:
        items: dict[int, Item] = {}
        by_id = {_cursor_key(shard)["id"]["S"]: shard for shard in shards}
        for chunk in chunks([*shards], _GET_LIMIT):
            keys: list[Any] = [_cursor_key(shard) for shard in chunk]
            while keys:
                with translated("read cursors"):
                    answer = self._client.batch_get_item(
                        RequestItems={self._table: {"Keys": keys, "ConsistentRead": True}}
                    )
                for item in answer["Responses"].get(self._table, []):
                    items[by_id[item["id"]["S"]]] = dict(item)
                left = answer["UnprocessedKeys"].get(self._table)
                keys = list(left["Keys"]) if left else []
        return items

    def _set_cursor(
        self, shard: int, minute: datetime, epoch: int, condition: Mapping[str, Any]
    ) -> bool:
        item = _cursor_key(shard) | to_item({"minute": isoformat(minute), "epoch": epoch})
        try:
            with translated("set cursor"):
                self._client.put_item(TableName=self._table, Item=item, **condition)
        except refused() as error:
            if error_code(error) == _REFUSED:
                return False
            raise
        return True


def _lease_key(group: int) -> Item:
    return to_item({"id": f"lease#{group}"})


def _cursor_key(shard: int) -> Item:
    return to_item({"id": f"cursor#{shard}"})


def _unchanged(item: Item, fields: Sequence[str]) -> dict[str, Any]:
    """The condition that *fields* of the stored item are still those of *item*.

    A valid item differs from a broken one in at least one of the fields, so it is not overwritten.
    If several watchers see the same broken item, only the first one repairs it.
    """
    there = [name for name in fields if name in item]
    tests = [
        f"#{name} = :{name}" if name in there else f"attribute_not_exists(#{name})"
        for name in fields
    ]
    request: dict[str, Any] = {
        "ConditionExpression": " AND ".join(["attribute_exists(id)", *tests]),
        "ExpressionAttributeNames": {f"#{name}": name for name in fields},
    }
    if there:
        request["ExpressionAttributeValues"] = {f":{name}": item[name] for name in there}
    return request


def _decode_lease(item: Mapping[str, Any]) -> Lease:
    epoch = 0
    try:
        values = from_item(item)
        epoch = _count(values["epoch"])
        holder, released = values["holder"], values.get("released", False)
        if not isinstance(holder, str) or not isinstance(released, bool):
            raise TypeError("holder is not a string, or released is not a boolean")
        return Lease(holder, epoch, _count(values["beat"]), released=released)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return _BrokenLease("", epoch, 0, raw=dict(item))


def _decode_cursor(item: Mapping[str, Any]) -> datetime | None:
    """The cursor's minute; None if *item* does not decode as a cursor."""
    try:
        values = from_item(item)
        _count(values["epoch"])
        minute = floor_minute(parse_instant(values["minute"]))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return minute if _MIN_INSTANT <= minute < _END else None


def _decode_taken(item: Mapping[str, Any], minute: datetime) -> int | None:
    """Number of runs taken in *minute*; None if *item* does not hold a count of that minute."""
    try:
        values = from_item(item)
        there = parse_instant(values["minute"])
        # The condition compares the texts.
        sound = values["minute"] == isoformat(there)
        taken = _count(values["taken"])
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return taken if sound and minute <= there <= minute + _CLOCK_SKEW else None


def _encode_audit(audit: Audit) -> Item:
    return _AUDIT_KEY | to_item(
        {
            "started_at": isoformat(audit.started_at),
            "since": audit.since and isoformat(audit.since),
            "tenant": audit.after and audit.after.tenant,
            "job_id": audit.after and audit.after.job_id,
            "done": audit.done,
        }
    )


def _decode_audit(item: Mapping[str, Any]) -> Audit:
    try:
        values = from_item(item)
        after = [values[name] for name in ("tenant", "job_id") if name in values]
        if not isinstance(values["done"], bool) or not all(isinstance(t, str) for t in after):
            raise TypeError("done is not a boolean, or tenant and job_id are not strings")
        since = values.get("since")
        return Audit(
            parse_instant(values["started_at"]),
            since and parse_instant(since),
            JobKey(*after) if after else None,
            values["done"],
        )
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return _BrokenAudit(_MIN_INSTANT, done=True, raw=dict(item))


def _count(value: object) -> int:
    """Check an integer that the conditions of this table can compare.

    Raises:
        ValueError: *value* is not an integer, or is out of the range that watchers write.
    """
    # `epoch = 1` is never true for 1.5, and numbers of more than 38 digits cannot be incremented.
    if not isinstance(value, Decimal) or not 0 <= value <= _LAST_EPOCH or value % 1:
        raise ValueError(f"invalid count {value!r}: an integer from 0 to {_LAST_EPOCH}")
    return int(value)
