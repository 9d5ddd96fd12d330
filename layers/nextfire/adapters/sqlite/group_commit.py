"""Commits the transactions of several threads together, so that they wait for the disk once."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from nextfire.adapters.sqlite.own_connection import OwnConnection

_MOST = 64
"""Transactions of one commit: other processes wait for it."""


_SLOW_COMMIT = 0.02
"""Seconds. After a commit that takes longer, the next transaction begins a quarter of that later,
up to `_LONGEST_GAP`: other processes wait for the lock by looking every 1 to 100 ms, and would not
find it free.
"""
_LONGEST_GAP = 0.1


class _Group:
    """Transactions that are committed together. `error`: why they were not."""

    def __init__(self) -> None:
        self.size = 0
        self.error: Exception | None = None
        self.ended = threading.Event()


class GroupCommit:
    """The write transactions of one process, one after the other on one connection.

    A thread that finds others waiting leaves the transaction open for them, and the last one
    commits for all. Each thread continues only after that commit. A transaction that fails is
    undone alone. After a slow commit other processes get a turn.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """*connect* opens the connection; called for the first transaction."""
        self._connect = connect
        self._own: OwnConnection | None = None
        self._turn = threading.Lock()  # guards the connection and the open group
        self._group: _Group | None = None
        self._begin_at = 0.0
        self._counter = threading.Lock()  # guards the number of waiting threads
        self._waiting = 0

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Context manager: a connection in a write transaction; committed at the end, or undone
        after an exception.

        Raises:
            sqlite3.Error: Nothing was written.
        """
        group: _Group | None = None
        with self._my_turn():
            try:
                group, connection = self._joined()
                with _savepoint(connection, group):
                    yield connection
            finally:
                self._end_unless_awaited()
        group.ended.wait()
        if group.error is not None:
            raise group.error

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        """Context manager: holds the connection. A waiting thread always gets its turn, so the
        group that was left open for it is committed.
        """
        self._wait(1)
        try:
            self._turn.acquire()
        except BaseException:  # a signal handler raised it
            self._wait(-1)
            with self._turn:
                self._end_unless_awaited()
            raise
        self._wait(-1)
        try:
            yield
        finally:
            self._turn.release()

    @property
    def waiting(self) -> int:
        """The number of threads that wait for their turn."""
        return self._waiting

    def _wait(self, threads: int) -> None:
        with self._counter:
            self._waiting += threads

    def _joined(self) -> tuple[_Group, sqlite3.Connection]:
        """The open group, or a new one with a transaction."""
        if self._own is None:
            self._own = OwnConnection(self._connect())
        if self._group is None:
            if (gap := self._begin_at - time.monotonic()) > 0:
                time.sleep(gap)
            self._group = _Group()  # first: whatever interrupts BEGIN, the group is ended
            self._own.connection.execute("BEGIN IMMEDIATE")
        self._group.size += 1
        return self._group, self._own.connection

    def _end_unless_awaited(self) -> None:
        """Commit the open group, unless another thread will."""
        group = self._group
        if group is None or self._own is None:
            return
        connection = self._own.connection
        if self._waiting and group.size < _MOST and connection.in_transaction:
            return
        try:
            if not connection.in_transaction:
                raise group.error or _interrupted()
            began = time.monotonic()
            connection.execute("COMMIT")
            took = time.monotonic() - began
            if took > _SLOW_COMMIT:
                self._begin_at = began + took + min(took / 4, _LONGEST_GAP)
        except Exception as error:  # noqa: BLE001 — the threads of the group raise it
            group.error = error
        finally:
            if connection.in_transaction:
                # A signal handler may have raised before the commit.
                group.error = group.error or _interrupted()
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            self._group = None
            group.ended.set()

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._own = None


def _interrupted() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("the transaction was interrupted")
    error.sqlite_errorcode = sqlite3.SQLITE_INTERRUPT
    return error


@contextmanager
def _savepoint(connection: sqlite3.Connection, group: _Group) -> Iterator[None]:
    """Context manager: undoes its statements after an exception."""
    connection.execute("SAVEPOINT own")
    try:
        yield
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO own")
            connection.execute("RELEASE own")
        elif isinstance(error, sqlite3.Error):
            group.error = error  # such as a full disk: it undid what the others wrote, too
        raise
    connection.execute("RELEASE own")
