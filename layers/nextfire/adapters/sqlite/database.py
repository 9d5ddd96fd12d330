"""The database file: connections, transactions and durability."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from nextfire.adapters.sqlite.errors import require_writable, translated
from nextfire.adapters.sqlite.group_commit import GroupCommit
from nextfire.adapters.sqlite.own_connection import OwnConnection
from nextfire.adapters.sqlite.schema import is_current, migrate

BUSY = timedelta(seconds=10)
"""How long a write waits for the writes of other processes."""
_MAX_LOG_BYTES = 16 * 1024 * 1024
"""To this size the log is cut when a long read has ended, during which it grew."""


class Database:
    """One database file, which several processes use at the same time. Thread-safe.

    A committed transaction survives the death of all processes and of the machine: the file uses a
    write-ahead log with `synchronous=FULL`. Each thread reads with its own connection; writes share
    one. A forked process must open the file again.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy: timedelta = BUSY,
        max_pages: int | None = None,
        as_is: bool = False,
    ) -> None:
        """Open the file at *path*, create it if it does not exist, and apply missing migrations.

        Args:
            path: The file, in an existing folder on a local disk. Next to it, SQLite creates files
                with the suffixes ``-wal`` and ``-shm``.
            busy: How long a write waits for other processes.
            max_pages: Maximum number of pages of 4 KiB; None: no limit.
            as_is: Apply no migrations: for a command that reads the file of a running stack, whose
                processes may have an earlier version and would reject a migrated file.

        Raises:
            UnavailableError: The file is locked, or cannot be opened or written.
            UnusableDatabaseError: The file is damaged, or another program or a newer version of
                nextfire wrote it.
        """
        self.path = path
        self._busy = busy
        self._max_pages = max_pages
        self._as_is = as_is
        self._local = threading.local()
        self._writes = GroupCommit(self._open)
        with translated("open", path):
            (is_current if as_is else migrate)(self._connection(), path)

    @contextmanager
    def reading(self, what: str) -> Iterator[sqlite3.Connection]:
        """Context manager: a connection for single SELECT statements. Each sees all transactions
        that were committed before.
        """
        with translated(what, self.path):
            yield self._connection()

    @contextmanager
    def writing(self, what: str) -> Iterator[sqlite3.Connection]:
        """Context manager: a connection with a write transaction, which excludes all other writers.
        It is committed, durably, at the end; after an exception it is rolled back.

        Raises:
            UnavailableError: Nothing was written.
        """
        with translated(what, self.path), self._writes.transaction() as connection:
            yield connection

    def version(self) -> int:
        """A number that changes when another connection commits a write."""
        with self.reading("read version") as connection:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def close(self) -> None:
        """Close the connections. Those with which other threads read close when they end."""
        self._local.own = None
        self._writes.close()

    def _connection(self) -> sqlite3.Connection:
        own: OwnConnection | None = getattr(self._local, "own", None)
        if own is None:
            own = self._local.own = OwnConnection(self._open())
        return own.connection

    def _open(self) -> sqlite3.Connection:
        if not self._as_is:
            require_writable(self.path)
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy.total_seconds(),
            isolation_level=None,
            check_same_thread=False,  # the connection of a thread that ended is closed by another
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
        if self._max_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
        return connection
