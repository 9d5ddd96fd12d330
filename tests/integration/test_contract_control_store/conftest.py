"""The contract of `ControlStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import CONTROL
from nextfire.domain.ports.control import ControlStore
from tests.fakes import MemoryControlStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_each
from tests.integration.sqlite_file import put

CONTRACT_OF = (ControlStore,)
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Table:
    """The table behind a store, for writing items that no watcher writes."""

    store: ControlStore
    name: str = ""
    database: Database | None = None

    def spoil_lease(self, group: int, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryControlStore):
            self.store.spoil_lease(group)
        else:
            self._put(f"lease#{group}", values)

    def spoil_cursor(self, shard: int, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryControlStore):
            self.store.spoil_cursor(shard)
        else:
            self._put(f"cursor#{shard}", values)

    def spoil_taken(self, tenant: str, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryControlStore):
            self.store.spoil_taken(tenant)
        else:
            self._put(f"runs#{tenant}", values)

    def _put(self, item_id: str, values: Mapping[str, object]) -> None:
        if self.database is not None:
            put(self.database, CONTROL, id=item_id, **values)
            return
        dynamodb().put_item(TableName=self.name, Item=to_item({"id": item_id, **values}))


backend = on_each(*STORES)


@pytest.fixture
def table(backend: str, request: pytest.FixtureRequest) -> Table:
    if backend == MEMORY:
        return Table(MemoryControlStore())
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return Table(SqliteControlStore(database), database=database)
    name = request.getfixturevalue("tables").control
    return Table(DynamoDbControlStore(dynamodb(), table=name), name)


@pytest.fixture
def store(table: Table) -> ControlStore:
    return table.store
