"""The contract of `DueStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.table import DUE
from nextfire.domain.due import BrokenEntry, DueEntry, FireEntry, Slot, StoredEntry
from nextfire.domain.instants import to_ms
from nextfire.domain.ports.due import DueStore
from tests.builders import NOON, a_fire, a_job, job_key
from tests.fakes import InlineExecutor, MemoryDueStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_each
from tests.integration.sqlite_file import put

CONTRACT_OF = (DueStore,)
QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Held:
    """A store of four shards, with access that no port offers."""

    store: DueStore
    spoil: Callable[..., object]
    quarantined: Callable[[], list[str]]

    def read(
        self, minute: datetime = NOON, shard: int = 0, *, before: datetime | None = None
    ) -> list[StoredEntry | BrokenEntry]:
        return list(self.store.read(minute, shard, before=before, consistent=True))

    def entries(
        self, minute: datetime = NOON, shard: int = 0, *, before: datetime | None = None
    ) -> list[DueEntry]:
        found = self.read(minute, shard, before=before)
        assert all(isinstance(stored, StoredEntry) for stored in found)
        return [stored.entry for stored in found if isinstance(stored, StoredEntry)]


backend = on_each(*STORES)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryDueStore(shards=4)
        return Held(
            memory,
            memory.spoil,
            lambda: [f"{e.slot.bucket}/{e.slot.sort_key}" for e in memory.quarantined],
        )
    if backend == SQLITE:
        database = request.getfixturevalue("database")

        def kept() -> list[str]:
            with database.reading("test") as connection:
                items = DUE.query(connection, QUARANTINE, limit=9)
            assert all("error" in item and "quarantined_at" in item for item in items)
            return [item["entry"]["S"] for item in items]

        return Held(
            SqliteDueStore(database, shards=4),
            lambda slot, **values: put(
                database, DUE, **{"bucket": slot.bucket, "entry": slot.sort_key} | values
            ),
            kept,
        )
    table = request.getfixturevalue("tables").due
    client = dynamodb()

    def spoil(slot: Slot, **values: str) -> None:
        item = {"bucket": slot.bucket, "entry": slot.sort_key} | values
        client.put_item(TableName=table, Item={name: {"S": text} for name, text in item.items()})

    def quarantined() -> list[str]:
        answer = client.query(
            TableName=table,
            KeyConditionExpression="#bucket = :bucket",
            ExpressionAttributeNames={"#bucket": "bucket"},
            ExpressionAttributeValues={":bucket": {"S": QUARANTINE}},
        )
        assert all("error" in item and "quarantined_at" in item for item in answer["Items"])
        return [item["entry"]["S"] for item in answer["Items"]]

    store = DynamoDbDueStore(client, table=table, shards=4, executor=InlineExecutor())
    return Held(store, spoil, quarantined)


def jobs_of_shard(shard: int, count: int) -> list[str]:
    """The ids of some jobs whose entries are in *shard* of four."""
    ids = (f"job{n}" for n in range(100_000))
    found = (job_id for job_id in ids if job_key(job_id).shard(4) == shard)
    return [next(found) for _ in range(count)]


def entry_of(shard: int, due_at: datetime) -> FireEntry:
    return a_fire(a_job(jobs_of_shard(shard, 1)[0]), due_at)


BROKEN = "2026-05-24T12:00Z#000"


def slot(due_at: datetime, tail: str = "x") -> Slot:
    return Slot(BROKEN, f"{to_ms(due_at):013d}#{tail}")
