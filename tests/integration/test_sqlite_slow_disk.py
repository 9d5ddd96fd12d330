"""Two processes that write to a slow disk."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from nextfire.adapters.sqlite.group_commit import GroupCommit

COMMIT = 0.2
"""Seconds that a commit takes."""
BUSY = 3.0


class SlowConnection:
    """A connection to a slow disk, which commits within the lock."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str) -> object:
        if statement == "COMMIT":
            time.sleep(COMMIT)
        return self._connection.execute(statement)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_process_that_commits_without_end_lets_another_one_write(tmp_path: Path) -> None:
    def connect() -> Any:
        found = sqlite3.connect(
            tmp_path / "db", timeout=BUSY, isolation_level=None, check_same_thread=False
        )
        return SlowConnection(found)

    def write_on() -> None:
        while not enough.is_set():
            with busy.transaction() as connection:
                connection.execute("INSERT INTO stored VALUES (1)")
            begun.set()

    enough, begun = threading.Event(), threading.Event()
    busy, other = GroupCommit(connect), GroupCommit(connect)
    with other.transaction() as connection:
        connection.execute("CREATE TABLE stored (id)")
    writer = threading.Thread(target=write_on)
    writer.start()
    assert begun.wait(20)
    try:
        for _ in range(3):  # fails if the database stays locked for `BUSY`
            with other.transaction() as connection:
                connection.execute("INSERT INTO stored VALUES (2)")
    finally:
        enough.set()
        writer.join()
        busy.close()
        other.close()
