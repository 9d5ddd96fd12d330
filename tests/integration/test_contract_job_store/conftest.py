"""The contract of `JobStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.table import JOBS
from nextfire.domain.due import DueEntry, StoredEntry
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from tests.builders import a_definition, at
from tests.fakes import InlineExecutor, MemoryDueStore, MemoryJobStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_each
from tests.integration.sqlite_file import put

CONTRACT_OF = (JobStore,)


@dataclass(frozen=True, slots=True)
class Held:
    """The store, the due entries that it writes, and a way to make an item unreadable."""

    store: JobStore
    due: DueStore
    spoil: Callable[[JobKey], object]

    def entries(self) -> list[DueEntry]:
        """The entries due at 13:00 and 14:00."""
        found = [
            stored
            for hour in ("13:00", "14:00")
            for stored in self.due.read(at(hour), 0, before=None, consistent=True)
        ]
        return [stored.entry for stored in found if isinstance(stored, StoredEntry)]


backend = on_each(*STORES)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryDueStore()
        jobs = MemoryJobStore(memory)
        return Held(jobs, memory, jobs.spoil)
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return Held(
            SqliteJobStore(database),
            SqliteDueStore(database),
            lambda key: put(database, JOBS, tenant=key.tenant, job_id=key.job_id, uid=7),
        )
    tables = request.getfixturevalue("tables")
    client = dynamodb()
    due = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())
    store = DynamoDbJobStore(client, table=tables.jobs, due_table=tables.due)

    def spoil(key: JobKey) -> None:
        client.put_item(
            TableName=tables.jobs,
            Item={"tenant": {"S": key.tenant}, "job_id": {"S": key.job_id}, "uid": {"N": "7"}},
        )

    return Held(store, due, spoil)


@pytest.fixture
def store(held: Held) -> JobStore:
    return held.store


def changed(job: Job, **fields: object) -> Job:
    """The next revision of *job*."""
    return replace(
        job,
        revision=job.revision + 1,
        definition=a_definition(**fields),  # type: ignore[arg-type] # any field of a definition
        updated_at=at("12:30"),
    )
