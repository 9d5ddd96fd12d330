"""Jobs in DynamoDB."""

from __future__ import annotations

import base64
import binascii
import json
import math
import random
import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Never

from nextfire.adapters.aws import chunks, transact, transact_all
from nextfire.adapters.aws_errors import TransactionConflictError, error_code, refused, translated
from nextfire.adapters.due_store import entry_item
from nextfire.adapters.items import Item, to_item
from nextfire.domain.backfill import Backfill, Order
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.ids import JOB_ID, UID, JobKey
from nextfire.domain.instants import from_ms, isoformat, parse_instant, to_ms
from nextfire.domain.job import Job, JobDefinition, JobState, Replaced, WhenDocument
from nextfire.domain.ports import Page, Scan, Unreadable
from nextfire.domain.quotas import too_many_jobs

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_GET_LIMIT = 100  # keys of one BatchGetItem, a limit of DynamoDB


_CACHED = 4 * 1024
_FIELDS = (
    *("tenant", "job_id", "uid", "revision", "schedule_version", "effective_from", "state"),
    *("definition", "created_at", "updated_at", "replaced", "counted_from", "resumed_at"),
    *("pause_reason", "skips", "resumes_at", "counted", "drain_asked_at", "backfill"),
)
_WITHOUT_PAYLOAD: Any = {
    "ProjectionExpression": ", ".join(f"#{name}" for name in _FIELDS),
    "ExpressionAttributeNames": {f"#{name}": name for name in _FIELDS},
}
"""Watchers do not need payloads, and a hundred payloads may not fit into their memory."""


_COUNT = "#"
"""Prefix of a tenant's name in the partition of the tenant's job count. Tenant names do not start
with it."""
_TRIES = 6  # attempts of a write that conflicts with others on the same count
_BETWEEN_TRIES = 0.1  # maximum seconds between attempts


class DynamoDbJobStore:
    """`JobStore` on the tables `jobs` and, for the first due entry of a job, `due`.

    The number of jobs that count against a tenant's quota is an item of the table `jobs` in a
    dedicated partition. It is written in the same transaction as the job, so it stays correct if a
    process dies.
    """

    def __init__(
        self, client: DynamoDBClient, *, table: str, due_table: str = "", shards: int = 1
    ) -> None:
        self._client = client
        self._table = table
        self._due_table = due_table
        self._shards = shards

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        put: dict[str, Any] = {
            "TableName": self._table,
            "Item": _encode(job),
            "ConditionExpression": "attribute_not_exists(job_id)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if former is not None:
            put["ConditionExpression"] += " OR (uid = :former AND #state = :cancelled)"
            put["ExpressionAttributeNames"] = {"#state": "state"}
            put["ExpressionAttributeValues"] = to_item(
                {":former": former.uid, ":cancelled": JobState.CANCELLED.value}
            )
        count = self._count(job.key.tenant, int(job.counted), most)
        refused = self._write(put, first, now, "create job", count)
        return None if refused is None else decode_job(refused)

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        *,
        counts: int = 0,
        most: int | None = None,
    ) -> bool:
        put = replacing(job, self._table)
        count = self._count(job.key.tenant, counts, most)
        refused = self._write(put, entry, now, "update job", count)
        return refused is None or refused == put["Item"]

    def get(self, key: JobKey) -> Job | None:
        with translated("get job"):
            answer = self._client.get_item(
                TableName=self._table, Key=_key(key), ConsistentRead=True
            )
        item = answer.get("Item")
        return decode_job(item) if item else None

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        found: dict[JobKey, Job | Exception] = {}
        for chunk in chunks([*dict.fromkeys(keys)], _GET_LIMIT):
            with translated("get jobs"):
                answer = self._client.batch_get_item(
                    RequestItems={
                        self._table: _WITHOUT_PAYLOAD
                        | {"Keys": [*map(_key, chunk)], "ConsistentRead": consistent}
                    }
                )
            for item in answer["Responses"].get(self._table, []):
                key = JobKey(item["tenant"]["S"], item["job_id"]["S"])
                try:
                    found[key] = decode_job(item)
                except UndecodableError as error:
                    found[key] = error
        return found

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "tenant = :tenant",
            "ExpressionAttributeValues": to_item({":tenant": tenant}),
            "Limit": limit,
        }
        if cursor is not None:
            request["ExclusiveStartKey"] = _key(JobKey(tenant, decode_cursor(cursor, JOB_ID)))
        with translated("list jobs"):
            answer = self._client.query(**request)
        last = answer.get("LastEvaluatedKey")
        jobs: list[Job] = []
        unreadable: list[Unreadable] = []
        for item in answer["Items"]:
            try:
                jobs.append(decode_job(item))
            except UndecodableError as error:
                unreadable.append(Unreadable(item["job_id"]["S"], str(error)))
        return Page(jobs, encode_cursor(last["job_id"]["S"]) if last else None, unreadable)

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "tenant = :tenant",
            "ExpressionAttributeValues": to_item({":tenant": tenant}),
            "ProjectionExpression": "job_id",
        }
        if after is not None:
            request["KeyConditionExpression"] += " AND job_id > :after"
            request["ExpressionAttributeValues"] |= to_item({":after": after})
        found: list[str] = []
        while len(found) < limit:
            with translated("list job ids"):
                answer = self._client.query(**request, Limit=limit - len(found))
            found += [item["job_id"]["S"] for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return found

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "Limit": limit,
        }
        if after is not None:
            request["ExclusiveStartKey"] = _key(after)
        with translated("scan jobs"):
            answer = self._client.scan(**request)
        jobs: list[Job] = []
        unreadable: list[tuple[JobKey, str]] = []
        for item in answer["Items"]:
            if item["tenant"]["S"].startswith(_COUNT):
                continue
            try:
                jobs.append(decode_job(item))
            except UndecodableError as error:
                unreadable.append((_job_key(item), str(error)))
        last = answer.get("LastEvaluatedKey")
        return Scan(jobs, unreadable, _job_key(last) if last else None)

    def complete(self, job: Job, now: datetime) -> bool:
        counted = job.counted
        while True:
            there = self._complete(job, now, counted=counted)
            if there is None:
                return True
            if not _is_unchanged(there, job) or ("counted" in there) == counted:
                return False
            counted = not counted  # it has changed since *job* was read

    def _complete(self, job: Job, now: datetime, *, counted: bool) -> Item | None:
        """Set *job* to COMPLETED if the stored job is (or is not) *counted*. Returns None, or the
        item that fails the condition.
        """
        exists = "attribute_exists" if counted else "attribute_not_exists"
        update: Any = {
            "TableName": self._table,
            "Key": _key(job.key),
            "UpdateExpression": (
                "SET #state = :completed, updated_at = :now "
                f"REMOVE counted, {CHANGED_BY} ADD revision :one"
            ),
            "ConditionExpression": (
                "uid = :uid AND schedule_version = :version AND #state = :active"
                f" AND {exists}(counted)"
            ),
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": to_item(
                {
                    ":completed": JobState.COMPLETED.value,
                    ":active": JobState.ACTIVE.value,
                    ":uid": job.uid,
                    ":version": job.schedule_version,
                    ":now": isoformat(now),
                    ":one": 1,
                }
            ),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        count = self._count(job.key.tenant, -int(counted), None)
        if count is not None:
            return self._transact([{"Update": update}, count], "complete job")
        try:
            with translated("complete job"):
                self._client.update_item(**update)
        except refused() as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            return dict(error.response.get("Item", {}))
        return None

    def counted(self, tenant: str) -> int:
        with translated("read count"):
            answer = self._client.get_item(
                TableName=self._table, Key=_count_key(tenant), ConsistentRead=True
            )
        item = answer.get("Item", {})
        try:
            return int(item["jobs"]["N"]) if "jobs" in item else 0
        except (LookupError, ValueError) as error:
            raise UndecodableError(
                f"The stored job count of tenant {tenant!r} is not a number."
            ) from error

    def _count(self, tenant: str, counts: int, most: int | None) -> dict[str, Any] | None:
        """The write that adds *counts* to *tenant*'s job count, up to *most*; None if *counts* is
        0.
        """
        if not counts:
            return None
        update: dict[str, Any] = {
            "TableName": self._table,
            "Key": _count_key(tenant),
            "UpdateExpression": "ADD jobs :counts",
            "ExpressionAttributeValues": to_item(
                {":counts": counts, ":most": most if counts > 0 else None}
            ),
        }
        if most is not None and counts > 0:
            update["ConditionExpression"] = "attribute_not_exists(jobs) OR jobs < :most"
        return {"Update": update}

    def _write(
        self,
        put: dict[str, Any],
        entry: DueEntry | None,
        now: datetime,
        what: str,
        count: dict[str, Any] | None,
    ) -> Item | None:
        """Write the job, *entry* and *count* in one transaction. Returns None, or the stored item
        that fails the job's condition.
        """
        writes: list[Any] = [{"Put": put}]
        if entry is not None:
            due = {"TableName": self._due_table, "Item": entry_item(entry, now, self._shards)}
            writes.append({"Put": due})
        if count is None:
            return transact(self._client, writes, what)
        return self._transact([*writes, count], what)

    def _transact(self, writes: Sequence[Any], what: str) -> Item | None:
        """Commit *writes*, the last of which is a count. Retries on contention: concurrent
        creations of a tenant's jobs conflict on the count.

        Returns:
            None if committed; else the item that fails the condition of the first write.

        Raises:
            QuotaUsedUpError: The count is at its limit.
        """
        for left in reversed(range(_TRIES)):
            try:
                refused = transact_all(self._client, [*writes], what)
            except TransactionConflictError:
                if not left:
                    raise
                time.sleep(random.uniform(0, _BETWEEN_TRIES))  # noqa: S311 — not a secret
                continue
            if refused is None:
                return None
            index, item = refused
            if index == 0:
                return item
            raise too_many_jobs(writes[-1]["Update"]["ExpressionAttributeValues"][":most"]["N"])
        raise AssertionError("not reached")


def _is_unchanged(item: Mapping[str, Any], job: Job) -> bool:
    """Whether *item* is *job*, still ACTIVE and with the same schedule version."""
    wanted = {
        "uid": {"S": job.uid},
        "schedule_version": {"N": str(job.schedule_version)},
        "state": {"S": JobState.ACTIVE.value},
    }
    return all(item.get(name) == value for name, value in wanted.items())


def replacing(job: Job, table: str) -> dict[str, Any]:
    """The Put that replaces the previous revision by *job*."""
    return {
        "TableName": table,
        "Item": _encode(job),
        "ConditionExpression": "uid = :uid AND revision = :before",
        "ExpressionAttributeValues": to_item({":uid": job.uid, ":before": job.revision - 1}),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def encode_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, pattern: re.Pattern[str]) -> str:
    """The sort key in *cursor*. Cursors hold no partition, so they cannot reach another tenant.

    Raises:
        InvalidInputError: *cursor* does not hold a sort key that matches *pattern*.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not pattern.fullmatch(text):
        raise InvalidInputError(
            "cursor",
            cursor,
            "not a cursor of this listing",
            "Use a cursor that a listing returned.",
        )
    return text


def _job_key(item: Mapping[str, Any]) -> JobKey:
    return JobKey(item["tenant"]["S"], item["job_id"]["S"])


def _count_key(tenant: str) -> Item:
    return _key(JobKey(_COUNT + tenant, _COUNT))


def _key(key: JobKey) -> Item:
    return {"tenant": {"S": key.tenant}, "job_id": {"S": key.job_id}}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _encode(job: Job) -> Item:
    document = job.definition.document()
    payload = document["payload"]
    return to_item(
        {
            "tenant": job.key.tenant,
            "job_id": job.key.job_id,
            "uid": job.uid,
            "revision": job.revision,
            "schedule_version": job.schedule_version,
            "effective_from": isoformat(job.effective_from),
            "state": job.state.value,
            "definition": _json({k: v for k, v in document.items() if k != "payload"}),
            "payload": _json(payload) if payload != {} else None,
            "replaced": json.dumps([_encode_replaced(past) for past in job.replaced])
            if job.replaced
            else None,
            "created_at": isoformat(job.created_at),
            "updated_at": isoformat(job.updated_at),
            "counted_from": job.counted_from and isoformat(job.counted_from),
            "resumed_at": job.resumed_at and isoformat(job.resumed_at),
            "pause_reason": job.pause_reason,
            "skips": [to_ms(at) for at in job.skips] or None,
            "resumes_at": job.resumes_at and isoformat(job.resumes_at),
            "counted": job.counted or None,
            "drain_asked_at": job.drain_asked_at and isoformat(job.drain_asked_at),
            "backfill": job.backfill and _encode_backfill(job.backfill),
        }
    )


def _encode_replaced(past: Replaced) -> dict[str, Any]:
    return {
        "version": past.version,
        "effective_from": isoformat(past.effective_from),
        "until": isoformat(past.until),
        "counted_from": past.counted_from and isoformat(past.counted_from),
        "resumed_at": past.resumed_at and isoformat(past.resumed_at),
        "paused": past.paused,
        "when": past.when.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def _decode_replaced(values: Mapping[str, Any]) -> Replaced:
    return Replaced(
        version=int(values["version"]),
        effective_from=parse_instant(values["effective_from"]),
        until=parse_instant(values["until"]),
        when=WhenDocument.model_validate(values["when"]),
        counted_from=_from_text(values.get("counted_from")),
        resumed_at=_from_text(values.get("resumed_at")),
        paused=bool(values.get("paused", False)),
    )


def _encode_backfill(asked: Backfill) -> str:
    return _json(
        {
            "backfill_id": asked.backfill_id,
            "version": asked.version,
            "first": isoformat(asked.first),
            "last": isoformat(asked.last),
            "count": asked.count,
            "order": asked.order.value,
            "asked_at": isoformat(asked.asked_at),
            "reason": asked.reason,
        }
    )


def _decode_backfill(text: str) -> Backfill:
    values = json.loads(text)
    return Backfill(
        backfill_id=str(values["backfill_id"]),
        version=int(values["version"]),
        first=parse_instant(values["first"]),
        last=parse_instant(values["last"]),
        count=int(values["count"]),
        order=Order(values["order"]),
        asked_at=parse_instant(values["asked_at"]),
        reason=None if values["reason"] is None else str(values["reason"]),
    )


def _decode_all_replaced(text: str) -> tuple[Replaced, ...]:
    return tuple(map(_decode_replaced, json.loads(text)))


def _definition(item: Mapping[str, Any]) -> JobDefinition:
    text = item["definition"]["S"]
    # Watchers read the same definitions repeatedly, so small ones are cached.
    read = _parsed if len(text) <= _CACHED else JobDefinition.model_validate_json
    definition = read(text)
    if "payload" not in item:
        return definition
    return definition.model_copy(update={"payload": _payload(item["payload"]["S"])})


def _payload(text: str) -> Any:
    """Decode strict JSON. Values that a response cannot hold are found here, not in a listing."""
    return json.loads(text, parse_constant=_reject_constant, parse_float=_finite)


def _reject_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_constant(text)


@lru_cache(maxsize=512)
def _parsed(text: str) -> JobDefinition:
    return JobDefinition.model_validate_json(text)


def _instant(item: Mapping[str, Any], name: str) -> datetime | None:
    return parse_instant(item[name]["S"]) if name in item else None


def _from_text(value: str | None) -> datetime | None:
    return None if value is None else parse_instant(value)


def _uid(item: Mapping[str, Any]) -> str:
    uid: str = item["uid"]["S"]
    if not UID.fullmatch(uid):  # its due entries and messages would not decode
        raise ValueError(f"invalid uid {uid!r}")
    return uid


def decode_job(item: Mapping[str, Any]) -> Job:
    """Decode *item* as a job.

    Raises:
        UndecodableError: *item* is not a job.
    """
    try:
        # Decoded by hand for speed, as in the due store: this is done for each run.
        return Job(
            key=_job_key(item),
            uid=_uid(item),
            revision=int(item["revision"]["N"]),
            schedule_version=int(item["schedule_version"]["N"]),
            effective_from=parse_instant(item["effective_from"]["S"]),
            state=JobState(item["state"]["S"]),
            definition=_definition(item),
            created_at=parse_instant(item["created_at"]["S"]),
            updated_at=parse_instant(item["updated_at"]["S"]),
            replaced=_decode_all_replaced(item["replaced"]["S"]) if "replaced" in item else (),
            counted_from=_instant(item, "counted_from"),
            resumed_at=_instant(item, "resumed_at"),
            resumes_at=_instant(item, "resumes_at"),
            counted="counted" in item,
            drain_asked_at=_instant(item, "drain_asked_at"),
            backfill=_decode_backfill(item["backfill"]["S"]) if "backfill" in item else None,
            pause_reason=item["pause_reason"]["S"] if "pause_reason" in item else None,
            skips=tuple(from_ms(int(at["N"])) for at in item["skips"]["L"])
            if "skips" in item
            else (),
        )
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UndecodableError(f"job does not decode: {type(error).__name__}: {error}") from error
