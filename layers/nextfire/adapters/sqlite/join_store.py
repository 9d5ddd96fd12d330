"""Joins in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from datetime import datetime

from nextfire.adapters.dynamodb.fields import INTEGER, TEXT
from nextfire.adapters.dynamodb.run_items import MARKS, expiry, partition
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.ids import RunKey


class SqliteJoinStore:
    """`JoinStore` in *database*, in the table `runs`: in dedicated partitions, which no listing
    reads. `remove_expired` removes them with the records.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:
        with self._database.writing("add to join") as connection:
            marks = sorted({*_marks(connection, run, group), mark})
            job, run_id = _key(run, group)
            RUNS.put(
                connection,
                {
                    "job": TEXT.attribute(job),
                    "run_id": TEXT.attribute(run_id),
                    "marks": MARKS.codec.attribute(marks),
                    "expires_at": INTEGER.attribute(expiry(now)),
                },
            )
            return marks

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        with self._database.reading("read join") as connection:
            return [mark for group in groups for mark in _marks(connection, run, group)]


def _key(run: RunKey, group: int) -> tuple[str, str]:
    # A job id has no slash, so no job has this partition.
    return f"{partition(run.job)}/{run.run_id}/join", str(group)


def _marks(connection: sqlite3.Connection, run: RunKey, group: int) -> list[str]:
    item = RUNS.get(connection, *_key(run, group)) or {}
    return [*item["marks"]["SS"]] if "marks" in item else []
