"""Due entries in DynamoDB, partitioned by minute and shard."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws import chunks, one_by_one
from nextfire.adapters.aws_errors import error_code, is_transient, refused, translated, unanswered
from nextfire.adapters.items import Item, to_item
from nextfire.domain.due import (
    NORMAL_RANK,
    BackfillEntry,
    BrokenEntry,
    DispatchEntry,
    DueEntry,
    FireEntry,
    ResumeEntry,
    Slot,
    StoredEntry,
    bucket_name,
)
from nextfire.domain.ids import JOB_ID, TENANT, UID, JobKey, RunKey, content_id
from nextfire.domain.instants import from_ms, isoformat, to_ms
from nextfire.domain.run import Trigger

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_WRITE_LIMIT = 25  # requests of one BatchWriteItem, a limit of DynamoDB
_GET_LIMIT = 100  # keys of one BatchGetItem, a limit of DynamoDB
_MAX_SORT_KEY = 1024  # bytes, a limit of DynamoDB
_QUARANTINE = "quarantine"
_UNKNOWN_KIND_KEY = re.compile(rf"[0-9]{{13}}#{UID.pattern}#(?![FRP]\b)[A-Z]")
_KINDS = {
    "FIRE": FireEntry,
    "RETRY": DispatchEntry,
    "RESUME": ResumeEntry,
    "BACKFILL": BackfillEntry,
}
"""Maps the stored kind to the type of entry. Stored items and older versions use these texts, so
they must not change.
"""
_KIND_OF = {entry_type: kind for kind, entry_type in _KINDS.items()}
_FIELDS = ("kind", "tenant", "job_id", "uid", "version", "run_id", "dispatch", "pool")
"""The attributes of an entry, without its key."""


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
            request["ExclusiveStartKey"] = _key(after)
        if page is not None:
            request["Limit"] = page
        while True:
            with translated("read due entries"):
                answer = self._client.query(**request)
            yield from map(_decode, answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        found: set[Slot] = set()
        for chunk in chunks([*dict.fromkeys(slots)], _GET_LIMIT):
            keys: list[Any] = [_key(slot) for slot in chunk]
            while keys:
                with translated("check slots"):
                    answer = self._client.batch_get_item(
                        RequestItems={
                            self._table: {
                                "Keys": keys,
                                "ConsistentRead": True,
                                "ProjectionExpression": "#bucket, #entry",
                                "ExpressionAttributeNames": {
                                    "#bucket": "bucket",
                                    "#entry": "entry",
                                },
                            }
                        }
                    )
                items = answer["Responses"].get(self._table, [])
                found.update(Slot(item["bucket"]["S"], item["entry"]["S"]) for item in items)
                left = answer["UnprocessedKeys"].get(self._table)
                keys = list(left["Keys"]) if left else []
        return found

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        slots = [Slot(entry.bucket(now, self._shards), entry.sort_key) for entry in entries]
        # Two entries with the same key are one entry. DynamoDB rejects a batch with duplicate keys.
        items = {s: _item(e, s) for e, s in zip(entries, slots, strict=True)}
        stored = set(
            self._write(
                {slot: {"PutRequest": {"Item": item}} for slot, item in items.items()},
                single=lambda slot: self._client.put_item(TableName=self._table, Item=items[slot]),
            )
        )
        return {entry for entry, slot in zip(entries, slots, strict=True) if slot in stored}

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        items = {each.slot: _item(replace(each.entry, held=True), each.slot) for each in entries}
        self._write(
            {slot: {"PutRequest": {"Item": item}} for slot, item in items.items()},
            single=lambda slot: self._client.put_item(TableName=self._table, Item=items[slot]),
        )

    def delete(self, slots: Collection[Slot]) -> None:
        self._write(
            {slot: {"DeleteRequest": {"Key": _key(slot)}} for slot in slots},
            single=lambda slot: self._client.delete_item(TableName=self._table, Key=_key(slot)),
        )

    def keep(self, entry: BrokenEntry, now: datetime) -> None:
        item: Item = dict(entry.raw) if isinstance(entry.raw, Mapping) else {}
        item |= to_item(
            {
                "bucket": _QUARANTINE,
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
        equal = " AND ".join(
            f"#{name} = :{name}" if name in raw else f"attribute_not_exists(#{name})"
            for name in _FIELDS
        )
        values = {f":{name}": raw[name] for name in _FIELDS if name in raw}
        request: dict[str, Any] = {"ExpressionAttributeValues": values} if values else {}
        try:
            with translated("delete broken entry"):
                self._client.delete_item(
                    TableName=self._table,
                    Key=_key(entry.slot),
                    ConditionExpression=equal,
                    ExpressionAttributeNames={f"#{name}": name for name in _FIELDS},
                    **request,
                )
        except refused() as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise

    def _write(self, requests: Mapping[Slot, Any], single: Any) -> list[Slot]:
        """Write *requests* in concurrent batches. Returns the slots that were written."""

        def batch(slots: list[Slot]) -> list[Slot]:
            if len(slots) == 1:
                return one_by_one(slots, single)
            try:
                answer = self._client.batch_write_item(
                    RequestItems={self._table: [requests[slot] for slot in slots]}
                )
            except unanswered():
                return []
            except refused() as error:
                if is_transient(error):
                    return []  # more requests would only add load
                # The whole batch was rejected, maybe for one bad entry. Each write is idempotent.
                return one_by_one(slots, single)
            left = {
                _slot_of(request) for request in answer["UnprocessedItems"].get(self._table, [])
            }
            return [slot for slot in slots if slot not in left]

        written = self._executor.map(batch, chunks([*requests], _WRITE_LIMIT))
        return [slot for slots in written for slot in slots]


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


def _key(slot: Slot) -> Item:
    return {"bucket": {"S": slot.bucket}, "entry": {"S": slot.sort_key}}


def entry_item(entry: DueEntry, now: datetime, shards: int) -> Item:
    """*entry* as the item that a writer at *now* stores."""
    return _item(entry, Slot(entry.bucket(now, shards), entry.sort_key))


def _item(entry: DueEntry, slot: Slot) -> Item:
    # Built by hand because this is done for each run: the generic serializer, which inspects the
    # type of each value, takes three times as long.
    item: Item = {
        **_key(slot),
        "kind": {"S": _KIND_OF[type(entry)]},
        "tenant": {"S": entry.job.tenant},
        "job_id": {"S": entry.job.job_id},
        "uid": {"S": entry.uid},
    }
    if entry.rank != NORMAL_RANK:
        item["rank"] = {"N": str(entry.rank)}
    if entry.held:
        item["held"] = {"BOOL": True}
    match entry:
        case FireEntry():
            item["version"] = {"N": str(entry.version)}
            if entry.occurrence:
                item["occurs_at"] = {"N": str(to_ms(entry.occurrence))}
            if entry.ordinal > 1:
                item["ordinal"] = {"N": str(entry.ordinal)}
        case DispatchEntry():
            item["run_id"] = {"S": entry.run_id}
            item["dispatch"] = {"N": str(entry.dispatch)}
            item["pool"] = {"S": entry.pool}
            if entry.exclusive:
                item["exclusive"] = {"BOOL": True}
            if entry.trigger is not Trigger.SCHEDULE:
                item["trigger"] = {"S": entry.trigger.value}
        case BackfillEntry():
            item["request"] = {"S": entry.request}
            if entry.ordinal > 1:
                item["ordinal"] = {"N": str(entry.ordinal)}
    return item


def _decode(item: Mapping[str, Any]) -> StoredEntry | BrokenEntry:
    slot = Slot(item["bucket"]["S"], item["entry"]["S"])
    try:
        entry = _read(item, slot.sort_key)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        return BrokenEntry(slot, item, problem, *_salvage(slot, item), _is_foreign(slot, item))
    return StoredEntry(slot, entry)


def _read(item: Mapping[str, Any], sort_key: str) -> DueEntry:
    """Decode *item* as a due entry. Attributes that its kind does not have are ignored.

    Raises:
        LookupError, TypeError, ValueError: The item is not a due entry.
    """
    if item["kind"]["S"] == "FIRE":
        return _fire_entry(
            sort_key,
            item["tenant"]["S"],
            item["job_id"]["S"],
            item["uid"]["S"],
            item["version"]["N"],
            occurs_at=item["occurs_at"]["N"] if "occurs_at" in item else None,
            ordinal=item["ordinal"]["N"] if "ordinal" in item else 1,
            rank=item["rank"]["N"] if "rank" in item else NORMAL_RANK,
            held=item["held"]["BOOL"] if "held" in item else False,
        )
    entry = _read_other(item, from_ms(int(sort_key[:13])))
    _check(entry, sort_key)
    return entry


@lru_cache(maxsize=4096)
def _fire_entry(
    sort_key: str,
    tenant: str,
    job_id: str,
    uid: str,
    version: str,
    *,
    occurs_at: str | None,
    ordinal: str | int,
    rank: str | int,
    held: bool,
) -> FireEntry:
    """Build a fire entry. Cached: each poll of the look-ahead reads the same items again."""
    entry = FireEntry(
        JobKey(tenant, job_id),
        uid,
        from_ms(int(sort_key[:13])),
        int(version),
        None if occurs_at is None else from_ms(int(occurs_at)),
        int(ordinal),
        rank=int(rank),
        held=bool(held),
    )
    _check(entry, sort_key)
    return entry


def _read_other(item: Mapping[str, Any], at: datetime) -> DueEntry:
    job, uid = JobKey(item["tenant"]["S"], item["job_id"]["S"]), item["uid"]["S"]
    rank = int(item["rank"]["N"]) if "rank" in item else NORMAL_RANK
    held = bool(item["held"]["BOOL"]) if "held" in item else False
    kind = _KINDS.get(item["kind"]["S"])
    if kind is DispatchEntry:
        return DispatchEntry(
            job,
            uid,
            at,
            item["run_id"]["S"],
            int(item["dispatch"]["N"]),
            item["pool"]["S"],
            exclusive=bool(item["exclusive"]["BOOL"]) if "exclusive" in item else False,
            trigger=Trigger(item["trigger"]["S"]) if "trigger" in item else Trigger.SCHEDULE,
            rank=rank,
            held=held,
        )
    if kind is ResumeEntry:
        return ResumeEntry(job, uid, at, rank=rank, held=held)
    if kind is BackfillEntry:
        ordinal = int(item["ordinal"]["N"]) if "ordinal" in item else 1
        return BackfillEntry(job, uid, at, item["request"]["S"], ordinal, rank=rank, held=held)
    raise ValueError(f"kind {item['kind']['S']!r} is not one of {', '.join(_KINDS)}")


def _check(entry: DueEntry, sort_key: str) -> None:
    """Reject an entry that cannot become a message: found later, it would fail the whole batch.

    Raises:
        ValueError: A field is malformed, or the entry does not belong to *sort_key*.
    """
    if entry.sort_key != sort_key:
        raise ValueError(f"the attributes belong to another key, {entry.sort_key}")
    if not TENANT.fullmatch(entry.job.tenant) or not JOB_ID.fullmatch(entry.job.job_id):
        raise ValueError(f"invalid job key {entry.job}")
    if not UID.fullmatch(entry.uid):
        raise ValueError(f"invalid uid {entry.uid!r}")
    if isinstance(entry, DispatchEntry):
        key = RunKey(entry.job, entry.run_id)
        _ = key.scheduled_at
        if entry.dispatch < 1 or not entry.pool or key.uid != entry.uid:
            raise ValueError(
                f"invalid dispatch {entry.dispatch} (1 or more), or empty pool {entry.pool!r},"
                f" or the run does not belong to the job with uid {entry.uid!r}"
            )
    elif isinstance(entry, FireEntry | BackfillEntry) and entry.ordinal < 1:
        raise ValueError(f"invalid ordinal {entry.ordinal}: 1 or more")


def _is_foreign(slot: Slot, item: Mapping[str, Any]) -> bool:
    """Whether both its kind and its key show a kind of entry that this version does not know."""
    kind = item.get("kind", {}).get("S")
    named = isinstance(kind, str) and kind not in _KINDS
    return named and _UNKNOWN_KIND_KEY.match(slot.sort_key) is not None


def _salvage(slot: Slot, item: Mapping[str, Any]) -> tuple[datetime | None, JobKey | None]:
    """The due instant and the job of a broken entry; None for each that cannot be read."""
    stamp = re.match(r"[0-9]{13}(?=#)", slot.sort_key)
    tenant, job_id = (str(item.get(name, {}).get("S", "")) for name in ("tenant", "job_id"))
    job = JobKey(tenant, job_id) if tenant and JOB_ID.fullmatch(job_id) else None
    return from_ms(int(stamp[0])) if stamp else None, job
