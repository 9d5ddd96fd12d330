"""The tables of a deployment, and how to restore them. A case that begins with another case's
leftovers is not reproducible alone, and Hypothesis reports it as flaky.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeAlias

from tests.fuzz.items import Item
from tests.integration.deployment import Deployment

Held: TypeAlias = dict[str, list[Item]]
"""The items of each table."""
_BATCH = 25  # items of a BatchWriteItem


def held_by(system: Deployment) -> Held:
    """Read the items of all tables of *system*."""
    tables = (
        *(system.jobs_table, system.due_table, system.runs_table, system.control_table),
        *(system.keys_table, system.requests_table, system.endpoints_table),
    )
    return {table: list(_items(system, table)) for table in tables}


def bring_back(system: Deployment, held: Held | None = None) -> None:
    """Restore the tables to *held*, default: empty; purge the queues."""
    for table, items in held_by(system).items():
        described: Any = system.database.describe_table(TableName=table)["Table"]["KeySchema"]
        names = [each["AttributeName"] for each in described]
        deletes = ({"DeleteRequest": {"Key": {n: item[n] for n in names}}} for item in items)
        puts = ({"PutRequest": {"Item": item}} for item in (held or {}).get(table, []))
        for requests in (deletes, puts):
            while batch := list[Any](islice(requests, _BATCH)):
                system.database.batch_write_item(RequestItems={table: batch})
    for url in (system.queue_url, system.dlq_url):
        system.queues.purge_queue(QueueUrl=url)


def _items(system: Deployment, table: str) -> Iterator[Item]:
    for page in system.database.get_paginator("scan").paginate(TableName=table):
        yield from page["Items"]
