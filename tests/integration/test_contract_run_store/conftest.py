"""The contract of `RunStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.run_reads import run_key as item_key
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.due import DispatchEntry, DueEntry, StoredEntry
from nextfire.domain.ids import RunKey
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.runs import Claim, RunStore
from nextfire.domain.run import Run, RunState, Trigger
from tests.builders import LEASE, NOON, a_message, a_retry, at, run_key
from tests.fakes import InlineExecutor, MemoryDueStore, MemoryRunStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_each
from tests.integration.sqlite_file import put

CONTRACT_OF = (RunStore,)
FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1, "out", "err")
HANDED_BACK = Result(AttemptOutcome.HANDED_BACK, "its worker shut down")


@dataclass(frozen=True, slots=True)
class Held:
    """A store, with access that no port offers: requests to cancel, and items that are not runs."""

    store: RunStore
    request_cancel: Callable[[RunKey], object]
    spoil: Callable[[RunKey], object]


backend = on_each(*STORES)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Held:
    if backend == MEMORY:
        memory = MemoryRunStore(MemoryDueStore(shards=1))
        return Held(memory, memory.request_cancel, memory.spoil)
    if backend == SQLITE:
        database = request.getfixturevalue("database")

        def ask(run: RunKey) -> None:
            with database.writing("test") as connection:
                item = RUNS.get(connection, *item_key(run))
                assert item is not None
                RUNS.put(connection, item | {"cancel_requested": {"BOOL": True}})

        def damage(run: RunKey) -> None:
            job, run_id = item_key(run)
            put(database, RUNS, job=job, run_id=run_id, state="ASLEEP")

        return Held(SqliteRunStore(database), ask, damage)
    tables = request.getfixturevalue("tables")
    table, client = tables.runs, dynamodb()

    def key(run: RunKey) -> dict[str, dict[str, str]]:
        return {
            "job": {"S": f"{run.job.tenant}/{run.job.job_id}"},
            "run_id": {"S": run.run_id},
        }

    def request_cancel(run: RunKey) -> None:
        client.update_item(
            TableName=table,
            Key=key(run),
            UpdateExpression="SET cancel_requested = :yes",
            ExpressionAttributeValues={":yes": {"BOOL": True}},
        )

    def spoil(run: RunKey) -> None:
        client.put_item(TableName=table, Item=key(run) | {"state": {"S": "ASLEEP"}})

    store = DynamoDbRunStore(client, table=table, due_table=tables.due, shards=1)
    return Held(store, request_cancel, spoil)


@pytest.fixture
def store(held: Held) -> RunStore:
    return held.store


def claim(
    store: RunStore,
    message: RunMessage | None = None,
    *,
    mark: str = "t1",
    worker: str = "a",
    now: datetime = NOON,
) -> Claim:
    return store.claim(
        message or a_message(),
        token=mark,
        worker=worker,
        pool="default",
        job_revision=3,
        now=now,
        lease_until=now + LEASE,
    )


def retrying(store: RunStore, *, not_before: datetime) -> Run:
    """The run, waiting for its second dispatch."""
    run = claim(store).run
    return store.advance(run, run.retrying(FAILED, NOON, not_before=not_before)).run


# Dead runs


@dataclass(frozen=True, slots=True)
class Dead:
    """A store that redrives, and the due entries that it has stored."""

    store: RunStore
    entries: Callable[[], list[DueEntry]]

    def dispatches(self) -> list[DispatchEntry]:
        return [each for each in self.entries() if isinstance(each, DispatchEntry)]

    def die(self, key: RunKey, *, when: datetime = NOON, dispatch: int = 1) -> Run:
        run = claim(self.store, a_message(key, dispatch=dispatch)).run
        return self.store.advance(run, run.ended(RunState.DEAD, FAILED, when)).run


@pytest.fixture
def dead(backend: str, request: pytest.FixtureRequest) -> Dead:
    if backend == MEMORY:
        due = MemoryDueStore(shards=1)
        return Dead(MemoryRunStore(due), lambda: due.entries)
    store: RunStore
    stored: DueStore
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        store, stored = SqliteRunStore(database), SqliteDueStore(database)
    else:
        tables = request.getfixturevalue("tables")
        client = dynamodb()
        store = DynamoDbRunStore(client, table=tables.runs, due_table=tables.due, shards=1)
        stored = DynamoDbDueStore(client, table=tables.due, shards=1, executor=InlineExecutor())

    def entries() -> list[DueEntry]:
        found = stored.read(NOON, 0, before=None, consistent=True)
        return [each.entry for each in found if isinstance(each, StoredEntry)]

    return Dead(store, entries)


def redrive(dead: Dead, run: Run, now: datetime = NOON) -> Claim:
    to = run.redriven("redriven", now)
    return dead.store.redrive(to, a_retry(run.key, now, dispatch=to.dispatch), now)


def reopen(dead: Dead, run: Run) -> Claim:
    to = run.redriven("ALL_SUCCEEDED: a SUCCEEDED", NOON, by_user=False)
    entry = a_retry(run.key, NOON, dispatch=to.dispatch)
    return dead.store.redrive(to, entry, NOON, was=RunState.SKIPPED, by_user=False)


# Runs on request


def asked_for(request: str = "r", **more: Any) -> Run:
    return Run(
        run_key(at("12:00:00.001")),
        RunState.PENDING,
        reason="run on request",
        trigger=Trigger.MANUAL,
        request=request,
        **more,
    )


def ask_for(dead: Dead, run: Run) -> Claim:
    return dead.store.request(run, a_retry(run.key, NOON, dispatch=1), NOON)


def stored(dead: Dead, run: Run) -> Run:
    found = dead.store.get(run.key)
    assert found is not None
    return found
