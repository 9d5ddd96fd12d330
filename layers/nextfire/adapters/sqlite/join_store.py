"""Joins in SQLite."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from nextfire.adapters.dynamodb.run_items import expiry, partition
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.ids import RunKey


class SqliteJoinStore:
    """`JoinStore` in *database*, one row per mark. `remove_expired` removes them with the run
    records.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:
        key = (_id(run), group)
        with self._database.writing("add to join") as connection:
            connection.execute(
                "REPLACE INTO joins (run, part, mark, expires_at) VALUES (?, ?, ?, ?)",
                (*key, mark, expiry(now)),
            )
            rows = connection.execute("SELECT mark FROM joins WHERE run = ? AND part = ?", key)
            return [each for (each,) in rows]

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        found: list[str] = []
        with self._database.reading("read join") as connection:
            for group in groups:
                rows = connection.execute(
                    "SELECT mark FROM joins WHERE run = ? AND part = ?", (_id(run), group)
                )
                found += [each for (each,) in rows]
        return found


def _id(run: RunKey) -> str:
    return f"{partition(run.job)}/{run.run_id}"
