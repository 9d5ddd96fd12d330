"""Joins in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from nextfire.adapters.dynamodb.fields import INTEGER, TEXT
from nextfire.adapters.dynamodb.run_items import MARKS, expiry, partition
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import RUNS
from nextfire.domain.ids import JobKey, RunKey


class SqliteJoinStore:
    """`JoinStore` in *database*, in the table `runs`: in dedicated partitions, which no listing
    reads. `remove_expired` removes them with the records.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:
        with self._database.writing("add to join") as connection:
            key = _key(run, group)
            marks = sorted({*_marks(connection, key), mark})
            _put(connection, key, marks, INTEGER.attribute(expiry(now)))
            return marks

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        with self._database.reading("read join") as connection:
            keys = [_key(run, group) for group in groups]
            return [mark for key in keys for mark in _marks(connection, key)]

    def begin_sequence(self, first: RunKey, most: int, now: datetime) -> bool:
        with self._database.writing("begin sequence") as connection:
            key = _sequences(first.job)
            begun = {*_marks(connection, key)}
            if len(begun) < most or first.run_id in begun:
                marks = sorted({*begun, first.run_id})
                _put(connection, key, marks, INTEGER.attribute(expiry(now)))
                return True
            return False

    def begun_sequences(self, job: JobKey) -> Collection[str]:
        with self._database.reading("read sequences") as connection:
            return _marks(connection, _sequences(job))

    def end_sequences(self, job: JobKey, first: Collection[str]) -> None:
        with self._database.writing("end sequences") as connection:
            key = _sequences(job)
            item = RUNS.get(connection, *key)
            if item is not None:
                left = sorted({*_marks(connection, key)} - {*first})
                _put(connection, key, left, item["expires_at"])


def _key(run: RunKey, group: int) -> tuple[str, str]:
    # A job id has no slash, so no job has this partition.
    return f"{partition(run.job)}/{run.run_id}/join", str(group)


def _sequences(job: JobKey) -> tuple[str, str]:
    return f"{partition(job)}/sequences", "0"


def _put(
    connection: sqlite3.Connection, key: tuple[str, str], marks: Sequence[str], expires_at: Any
) -> None:
    item = {"job": TEXT.attribute(key[0]), "run_id": TEXT.attribute(key[1])}
    if marks:
        item["marks"] = MARKS.codec.attribute(marks)
    RUNS.put(connection, item | {"expires_at": expires_at})


def _marks(connection: sqlite3.Connection, key: tuple[str, str]) -> list[str]:
    item = RUNS.get(connection, *key) or {}
    return [*item["marks"]["SS"]] if "marks" in item else []
