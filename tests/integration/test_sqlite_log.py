"""The size of the database's write-ahead log."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from nextfire.adapters.sqlite import database as module
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import CONTROL
from tests.integration.sqlite_file import another_process, put


def test_the_log_is_cut_after_a_long_read(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept its size until the stack was stopped."""
    monkeypatch.setattr(module, "_MAX_LOG_BYTES", 100_000)
    database = another_process(database)
    log = database.path.with_name(f"{database.path.name}-wal")

    def write(times: int) -> None:
        for number in range(times):
            put(database, CONTROL, id=f"item{number % 100}", text="x" * 10_000)

    with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM control").fetchone()
        write(500)
        assert log.stat().st_size > 5_000_000
    write(3)

    assert log.stat().st_size <= 100_000
