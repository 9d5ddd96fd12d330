"""Tables of items: the items of the DynamoDB tables, as JSON, with their keys as columns.

So both databases share the field lists of `adapters.dynamodb`, with their encoders and decoders.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from nextfire.adapters.dynamodb.items import Item

END = "\U0010ffff"
"""Sorts after all keys."""


def after(key: str) -> str:
    """The least text that sorts after *key*."""
    return f"{key}\0"


class Table:
    """A table of items.

    *key*: the attributes of the key: of the partition and, if it has one, the sort key. *columns*:
    further attributes that are columns, for indexes.
    """

    def __init__(self, name: str, *key: str, columns: Sequence[str] = ()) -> None:
        self.name = name
        self._columns = (*key, *columns)
        match = " AND ".join(f"{each} = ?" for each in key)
        places = ", ".join("?" for _ in range(len(self._columns) + 1))
        # All names are constants.
        self._get = f"SELECT item FROM {name} WHERE {match}"  # noqa: S608
        self._delete = f"DELETE FROM {name} WHERE {match}"  # noqa: S608
        names = ", ".join((*self._columns, "item"))
        self._put = f"REPLACE INTO {name} ({names}) VALUES ({places})"  # noqa: S608
        partition, sort = key[0], key[-1]
        self._query = (
            f"SELECT item FROM {name} WHERE {partition} = ? AND {sort} >= ? AND {sort} < ? "  # noqa: S608
            f"ORDER BY {sort} {{order}} LIMIT ?"
        )

    def get(self, connection: sqlite3.Connection, *key: str) -> Item | None:
        row = connection.execute(self._get, key).fetchone()
        return None if row is None else _item(row)

    def put(self, connection: sqlite3.Connection, *items: Item) -> None:
        connection.executemany(self._put, [self._row(item) for item in items])

    def delete(self, connection: sqlite3.Connection, *keys: Sequence[str]) -> None:
        connection.executemany(self._delete, keys)

    def query(
        self,
        connection: sqlite3.Connection,
        partition: str,
        low: str = "",
        high: str = END,
        *,
        limit: int,
        newest_first: bool = False,
    ) -> list[Item]:
        """Return up to *limit* items of *partition* with sort keys from *low* up to, but not
        including, *high*, by sort key.
        """
        query = self._query.format(order="DESC" if newest_first else "ASC")
        return [*map(_item, connection.execute(query, (partition, low, high, limit)))]

    def select(
        self, connection: sqlite3.Connection, where: str, values: Iterable[object]
    ) -> list[Item]:
        """Return the items that match the rest of a SELECT statement, *where*, a constant."""
        query = f"SELECT item FROM {self.name} {where}"  # noqa: S608
        return [*map(_item, connection.execute(query, (*values,)))]

    def _row(self, item: Item) -> list[Any]:
        contents: list[Any] = [_content(item.get(name)) for name in self._columns]
        return [*contents, json.dumps(item, separators=(",", ":"))]


def _item(row: Sequence[str]) -> Item:
    item: Item = json.loads(row[0])
    return item


def _content(attribute: Any) -> str | int | None:
    """The content of a column."""
    if attribute is None:
        return None
    ((kind, content),) = attribute.items()
    return int(content) if kind == "N" else str(content)


JOBS = Table("jobs", "tenant", "job_id")
DUE = Table("due", "bucket", "entry")
RUNS = Table("runs", "job", "run_id", columns=("attention", "attention_at", "expires_at"))
CONTROL = Table("control", "id")
KEYS = Table("keys", "tenant", "key_id", columns=("forget_at",))
REQUESTS = Table("requests", "request", columns=("expires_at",))
ENDPOINTS = Table("endpoints", "owner", "destination", columns=("expires_at",))
