"""Jobs in DynamoDB."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.clients import transact
from nextfire.adapters.aws.errors import TransactionConflictError, conditional, translated
from nextfire.adapters.dynamodb.batch_reads import query_pages, read_batches, read_one, throttled
from nextfire.adapters.dynamodb.cursors import decode_cursor
from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.job_items import (
    WITHOUT_PAYLOAD,
    decode_job,
    decode_jobs,
    decode_key,
    encode_job,
    encode_key,
    is_unchanged,
)
from nextfire.adapters.dynamodb.job_pause import pause_update
from nextfire.adapters.dynamodb.job_removal import removal
from nextfire.adapters.dynamodb.job_scan import COUNT, JobScan
from nextfire.adapters.dynamodb.pages import answered
from nextfire.domain.change import CHANGED_BY
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import JOB_ID, JobKey
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.pages import Page
from nextfire.domain.quotas import too_many_jobs

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TRIES = 6  # attempts of a write that conflicts with others on the same count
_PATIENT_TRIES = 12  # of a patient store; they take 12 s at most
_BETWEEN_TRIES = [0.1, 0.1, *(0.1 * 1.5**n for n in range(10))]  # maximum seconds


class DynamoDbJobStore(JobScan):
    """`JobStore` on the tables `jobs` and, for the first due entry of a job, `due`.

    The number of jobs that count against a tenant's quota is an item of the table `jobs` in a
    dedicated partition. It is written in the same transaction as the job, so it stays correct if a
    process dies.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        *,
        table: str,
        due_table: str = "",
        shards: int = 1,
        patient: bool = False,
    ) -> None:
        """*patient*: wait up to 12 s for other processes that write the same job or count."""
        super().__init__(client, table)
        self._due_table = due_table
        self._shards = shards
        self._patient = patient

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
            "Item": encode_job(job),
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
        item = read_one(self._client, self._table, encode_key(key), "get job", consistent=True)
        return decode_job(item) if item else None

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        asked = [*map(encode_key, dict.fromkeys(keys))]
        request = WITHOUT_PAYLOAD | {"ConsistentRead": consistent}
        items, unread = read_batches(self._client, self._table, asked, request, "get jobs")
        return decode_jobs(items) | {decode_key(key): throttled("get jobs") for key in unread}

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "tenant = :tenant",
            "ExpressionAttributeValues": to_item({":tenant": tenant}),
            "Limit": limit,
        }
        if cursor is not None:
            request["ExclusiveStartKey"] = encode_key(JobKey(tenant, decode_cursor(cursor, JOB_ID)))
        with translated("list jobs"):
            answer = self._client.query(**request)
        return answered(answer, decode_job, "job_id")

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "tenant = :tenant",
            "ExpressionAttributeValues": to_item({":tenant": tenant}),
            "ProjectionExpression": "job_id",
            "Limit": limit,
        }
        if after is not None:
            request["KeyConditionExpression"] += " AND job_id > :after"
            request["ExpressionAttributeValues"] |= to_item({":after": after})
        found: list[str] = []
        for items in query_pages(self._client, request, "list job ids"):
            found += [item["job_id"]["S"] for item in items]
            if len(found) >= limit:
                break
            request["Limit"] = limit - len(found)
        return found

    def pause(self, job: Job, reason: str, now: datetime) -> bool:
        with conditional("pause job") as write:
            self._client.update_item(**pause_update(self._table, job, reason, now))
        return write.made

    def complete(self, job: Job, now: datetime) -> bool:
        counted = job.counted
        while True:
            stored = self._complete(job, now, counted=counted)
            if stored is None:
                return True
            if not is_unchanged(stored, job) or ("counted" in stored) == counted:
                return False
            counted = not counted  # it has changed since *job* was read

    def _complete(self, job: Job, now: datetime, *, counted: bool) -> Item | None:
        """Set *job* to COMPLETED if the stored job is (or is not) *counted*. Returns None, or the
        item that fails the condition.
        """
        exists = "attribute_exists" if counted else "attribute_not_exists"
        update: Any = {
            "TableName": self._table,
            "Key": encode_key(job.key),
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
            return self._commit([{"Update": update}], count, "complete job")
        with conditional("complete job") as write:
            self._client.update_item(**update)
        return None if write.made else write.found

    def remove(self, job: Job) -> bool:
        with conditional("remove job") as write:
            self._client.delete_item(**removal(self._table, job))
        return write.made

    def counted(self, tenant: str) -> int:
        item = (
            read_one(self._client, self._table, _count_key(tenant), "read count", consistent=True)
            or {}
        )
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
        return self._commit(writes, count, what)

    def _commit(
        self, writes: Sequence[Any], count: dict[str, Any] | None, what: str
    ) -> Item | None:
        """Commit *writes* and *count*. Retries on contention: concurrent creations of a tenant's
        jobs conflict on the count, those of children on their parent.

        Returns:
            None if committed; else the item that fails the condition of the first write.

        Raises:
            QuotaUsedUpError: The count is at its limit.
        """
        tries = _PATIENT_TRIES if self._patient else _TRIES if count else 1
        everything = [*writes, count] if count else [*writes]
        for number in range(tries):
            try:
                refused = transact(self._client, everything, what)
            except TransactionConflictError:
                if number == tries - 1:
                    raise
                time.sleep(random.uniform(0, _BETWEEN_TRIES[number]))  # noqa: S311 — not a secret
                continue
            if refused is None:
                return None
            index, item = refused
            if index == 0:
                return item
            raise too_many_jobs(everything[-1]["Update"]["ExpressionAttributeValues"][":most"]["N"])
        raise AssertionError("not reached")


def replacing(job: Job, table: str) -> dict[str, Any]:
    """The Put that replaces the previous revision by *job*."""
    return {
        "TableName": table,
        "Item": encode_job(job),
        "ConditionExpression": "uid = :uid AND revision = :before",
        "ExpressionAttributeValues": to_item({":uid": job.uid, ":before": job.revision - 1}),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _count_key(tenant: str) -> Item:
    return encode_key(JobKey(COUNT + tenant, COUNT))
