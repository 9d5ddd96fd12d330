"""Reads of run records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import translated
from nextfire.adapters.dynamodb.batch_reads import query_pages, read_all, read_one
from nextfire.adapters.dynamodb.cursors import decode_cursor, encode_cursor
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.pages import answered, decode_all
from nextfire.adapters.dynamodb.run_items import (
    ATTENTION_AT,
    DEAD_INDEX,
    DEAD_SHARDS,
    dead_shard,
    decode_run,
    encode_key,
    partition,
)
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ids import RUN_ID, JobKey, RunKey, first_run_id
from nextfire.domain.instants import to_ms
from nextfire.domain.ports.pages import Page
from nextfire.domain.run import Run, RunState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_PAGES_GROW_TO = 64


class RunReads:
    """The reads of `RunStore`, on the table `runs`."""

    _client: DynamoDBClient
    _table: str

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        """See `RunStore.list_dead`. The index has only keys: a write of an index entry with all
        attributes takes up to 33 write units, and a thousand units per second is the most that
        DynamoDB writes to a partition.
        """
        low, high = f"{to_ms(first):013d}", f"{to_ms(last):013d}~"
        if cursor is not None:
            high = min(high, _just_before(decode_cursor(cursor, ATTENTION_AT)))
        if high < low:  # which DynamoDB rejects
            return Page([], None)
        found: list[Item] = []
        for shard in range(DEAD_SHARDS):
            found += self._newest_dead(dead_shard(tenant, shard), low, high, limit + 1)
        found.sort(key=_attention_at, reverse=True)
        listed = found[:limit]
        keys = [{name: item[name] for name in ("job", "run_id")} for item in listed]
        items = read_all(self._client, self._table, keys, {}, "list dead runs") if keys else []
        # A run whose entry is not up to date may live again, or have died again later.
        current = {_attention_at(item): item for item in items if "attention_at" in item}
        dead = [current[at] for at in map(_attention_at, listed) if at in current]
        runs, unreadable = decode_all(dead, decode_run, execution_id)
        more = encode_cursor(_attention_at(listed[-1])) if len(found) > limit else None
        return Page(runs, more, unreadable)

    def _newest_dead(self, shard: str, low: str, high: str, limit: int) -> list[Item]:
        """Up to *limit* entries of *shard* with a sort key from *low* to *high*, newest first."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": DEAD_INDEX,
            "KeyConditionExpression": "attention = :shard AND attention_at BETWEEN :low AND :high",
            "ExpressionAttributeValues": to_item({":shard": shard, ":low": low, ":high": high}),
            "ScanIndexForward": False,
            "Limit": limit,
        }
        found: list[Item] = []
        for items in query_pages(self._client, request, "list dead runs"):
            found += items
            if len(found) >= limit:
                break
            request["Limit"] = limit - len(found)
        return found

    def get(self, key: RunKey) -> Run | None:
        return self._get(key, consistent=True)

    def peek(self, key: RunKey) -> Run | None:
        return self._get(key, consistent=False)

    def _get(self, key: RunKey, *, consistent: bool) -> Run | None:
        name = encode_key(key)
        item = read_one(self._client, self._table, name, "get run", consistent=consistent)
        return decode_run(item) if item else None

    def between(
        self,
        job: JobKey,
        first: str,
        last: str,
        *,
        newest_first: bool = False,
        page: int = 100,
        lenient: bool = False,
    ) -> Iterator[Run]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "job = :job AND run_id BETWEEN :first AND :last",
            "ExpressionAttributeValues": to_item(
                {":job": partition(job), ":first": first, ":last": last}
            ),
            "ScanIndexForward": not newest_first,
            "ConsistentRead": True,
            "Limit": page,
        }
        for items in query_pages(self._client, request, "read runs"):
            yield from decode_runs(items, job, lenient=lenient)
            # A caller that reads past a small page may have to pass over many records, of runs on
            # request or outstanding ones: not with a request for each.
            request["Limit"] = max(page, min(2 * request["Limit"], _PAGES_GROW_TO))

    def find(self, keys: Sequence[RunKey], *, consistent: bool = False) -> Page[Run]:
        if not keys:
            return Page([], None)
        wanted = [encode_key(key) for key in keys]
        request = {"ConsistentRead": consistent}
        items = read_all(self._client, self._table, wanted, request, "find runs")
        runs, unreadable = decode_all(items, decode_run, execution_id)
        return Page(runs, None, unreadable)

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "job = :job",
            "ExpressionAttributeValues": to_item({":job": partition(job)}),
            "ScanIndexForward": False,
            "Limit": limit,
        }
        low = high = None
        if first is not None and before is not None:
            low, high = first_run_id(first), first_run_id(before)
            request["KeyConditionExpression"] += " AND run_id BETWEEN :low AND :high"
            request["ExpressionAttributeValues"] |= to_item({":low": low, ":high": high})
        if cursor is not None:
            last_id = decode_cursor(cursor, RUN_ID)
            # DynamoDB rejects a start key outside the range.
            if low is not None and last_id < low:
                return Page([], None)
            if high is None or last_id < high:
                request["ExclusiveStartKey"] = encode_key(RunKey(job, last_id))
        with translated("list runs"):
            answer = self._client.query(**request)
        return answered(answer, decode_run, "run_id")


def decode_runs(items: Iterable[Item], job: JobKey, *, lenient: bool) -> Iterator[Run]:
    """The runs *items* of *job*; see `RunStore.between`."""
    for item in items:
        try:
            yield decode_run(item)
        except UndecodableError:
            run_id = item["run_id"]["S"]
            if not lenient:
                raise
            if RUN_ID.fullmatch(run_id):
                yield Run(RunKey(job, run_id), RunState.DEAD)


def _attention_at(item: Item) -> str:
    return str(item["attention_at"]["S"])


def _just_before(sort_key: str) -> str:
    """The end of a range that contains all sort keys below *sort_key*, and not *sort_key*."""
    return f"{sort_key[:-1]}{chr(ord(sort_key[-1]) - 1)}~"


def execution_id(item: Item) -> str:
    """The id of the execution in *item*, which need not decode."""
    job_id = str(item["job"]["S"]).partition("/")[2]
    return f"{job_id}.{item['run_id']['S']}"
