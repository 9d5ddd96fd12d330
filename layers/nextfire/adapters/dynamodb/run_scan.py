"""Reads the records of all runs, for a rebuild of the overview."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws.errors import translated
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.adapters.dynamodb.run_stream import DECODED
from nextfire.domain.errors import UndecodableError
from nextfire.domain.overview import Step, step_of
from nextfire.domain.ports.overview import ScannedRuns

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbRunScan:
    """`RunScan` on the table `runs`."""

    def __init__(self, client: DynamoDBClient, *, table: str) -> None:
        self._client = client
        self._table = table

    def pages(self, after: str | None) -> Iterator[ScannedRuns]:
        request: dict[str, Any] = {
            "TableName": self._table,
            "ProjectionExpression": ", ".join(f"#{name}" for name in DECODED),
            "ExpressionAttributeNames": {f"#{name}": name for name in DECODED},
        }
        start = None
        if after is not None:
            job, _, run_id = after.rpartition("#")  # which none of them contains
            start = to_item({"job": job, "run_id": run_id})
        while True:
            if start is not None:
                request["ExclusiveStartKey"] = start
            with translated("scan runs"):
                answer = self._client.scan(**request)
            start = answer.get("LastEvaluatedKey")
            steps: dict[str, list[Step]] = {}
            undecodable = 0
            for item in answer["Items"]:
                if "state" not in item:
                    continue  # an item of a join
                try:
                    run = decode_run(item)
                except UndecodableError:
                    undecodable += 1
                    continue
                steps.setdefault(run.key.job.tenant, []).append(step_of(run))
            yield ScannedRuns(steps, undecodable, _place(start))
            if start is None:
                return


def _place(key: Item | None) -> str | None:
    return None if key is None else f"{key['job']['S']}#{key['run_id']['S']}"
