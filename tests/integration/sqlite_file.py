"""Access to a SQLite database that no port offers."""

from __future__ import annotations

import json

from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import Table


def put(database: Database, table: Table, **values: object) -> None:
    """Store an item that no process writes."""
    item = json.loads(json.dumps(to_item(values), default=str))
    with database.writing("test") as connection:
        table.put(connection, item)


def another_process(database: Database) -> Database:
    """The database as another process opens it: no connection or lock is shared."""
    return Database(database.path)
