"""Fills a local stack with jobs at rest: stored jobs that are due in months.

``python -m benchmarks.fill INSTRUCTIONS`` takes a `Filling` as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.client import HTTPConnection
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from nextfire.adapters.dynamodb.due_items import entry_item
from nextfire.domain.due import fire
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import isoformat

_BATCH = 12  # jobs with their entries: 24 of at most 25 items of a BatchWriteItem
_YEAR = timedelta(days=365)


class Filling(BaseModel):
    """ONCE jobs number *first* to *last* - 1, with due times spread evenly over *spread* from
    *due_from*.

    `job` is the item of a stored job that is due at `job_due_at`; the others are copies of it.
    """

    endpoint: str
    access_key: str
    jobs_table: str
    due_table: str
    shards: int
    first: int
    last: int
    due_from: datetime
    spread: timedelta = _YEAR
    stored_at: datetime
    job: dict[str, dict[str, str]]
    job_due_at: datetime


def items(filling: Filling) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The item of each job and the item of its due entry."""
    tenant = filling.job["tenant"]["S"]
    version = int(filling.job["schedule_version"]["N"])
    stored_due_at = isoformat(filling.job_due_at)
    for number in range(filling.first, filling.last):
        job_id, uid = f"rest-{number:07d}", f"rest{number:08d}"
        due_at = filling.due_from + filling.spread * ((number * 7919) % 1_000_003 / 1_000_003)
        entry = fire(JobKey(tenant, job_id), uid, version, due_at)
        definition = filling.job["definition"]["S"].replace(stored_due_at, isoformat(entry.at))
        job = {
            **filling.job,
            "job_id": {"S": job_id},
            "uid": {"S": uid},
            "definition": {"S": definition},
        }
        yield job, entry_item(entry, filling.stored_at, filling.shards)


def main(filling: Filling) -> None:
    """Write them. This does not use the SDK, which would take most of the time. The emulator does
    not check the signature of its root user.
    """
    key = f"Credential={filling.access_key}/20260101/us-east-1/dynamodb/aws4_request"
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.BatchWriteItem",
        "Authorization": f"AWS4-HMAC-SHA256 {key}, SignedHeaders=host, Signature=0",
    }
    connection = HTTPConnection(urlsplit(filling.endpoint).netloc, timeout=120)
    pairs = items(filling)
    while batch := list(islice(pairs, _BATCH)):
        request = {
            filling.jobs_table: [{"PutRequest": {"Item": job}} for job, _ in batch],
            filling.due_table: [{"PutRequest": {"Item": entry}} for _, entry in batch],
        }
        connection.request("POST", "/", json.dumps({"RequestItems": request}), headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200 or body["UnprocessedItems"]:  # noqa: PLR2004
            sys.exit(f"write rejected: {answer.status} {body}")


if __name__ == "__main__":
    main(Filling.model_validate_json(sys.argv[1]))
