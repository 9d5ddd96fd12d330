"""Reads the jobs of all tenants, in the order of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import translated
from nextfire.adapters.dynamodb.job_items import decode_key, encode_key, scanned
from nextfire.domain.ids import JobKey
from nextfire.domain.ports.pages import Scan

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

COUNT = "#"
"""Prefix of a tenant's name in the partition of the tenant's job count. Tenant names do not start
with it."""


class JobScan:
    """The scans of `JobStore`.

    Not a parallel scan: its segments are ranges of hashes of partition keys, and all jobs of a
    tenant have one partition key.
    """

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        request: dict[str, Any] = {"ConsistentRead": True, "Limit": limit}
        items, last = self._page("scan jobs", after, request)
        return scanned(items, last)

    def skip(self, after: JobKey | None, number: int) -> JobKey | None:
        names = {"ProjectionExpression": "tenant, job_id"}
        while True:
            # Pages end at 1 MB: a limit saves the reads beyond the last job.
            items, last = self._page("skip jobs", after, names | {"Limit": number})
            if len(items) >= number:
                return decode_key(items[number - 1])
            number -= len(items)
            if last is None:
                return None
            after = last

    def _page(
        self, what: str, after: JobKey | None, request: dict[str, Any]
    ) -> tuple[list[Any], JobKey | None]:
        """One page of items that are not counts, and the position after it."""
        if after is not None:
            request = request | {"ExclusiveStartKey": encode_key(after)}
        with translated(what):
            answer = self._client.scan(TableName=self._table, **request)
        last = answer.get("LastEvaluatedKey")
        items = [each for each in answer["Items"] if not each["tenant"]["S"].startswith(COUNT)]
        return items, decode_key(last) if last else None
