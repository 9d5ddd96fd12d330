"""Token buckets in SQLite."""

from __future__ import annotations

from datetime import datetime

from nextfire.adapters.sqlite.database import Database
from nextfire.domain.request_limits import RequestLimit, Taken, take, to_us


class SqliteBucketStore:
    """`BucketStore` in *database*."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        with self._database.writing("take tokens") as connection:
            row = connection.execute("SELECT spent FROM buckets WHERE name = ?", (name,)).fetchone()
            taken = take(None if row is None else int(row[0]), to_us(now), limit, wanted)
            if taken.tokens:
                connection.execute(
                    "REPLACE INTO buckets (name, spent) VALUES (?, ?)", (name, taken.spent)
                )
            return taken
