"""What SQLite's errors mean, and what to do about them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nextfire.domain.errors import NextfireError, UnavailableError

_PRIMARY = 0xFF
"""The bits of a result code that SQLite documents as the primary one."""
_RETRYABLE = {
    sqlite3.SQLITE_BUSY: (
        "another process has locked it. Try again. If it stays locked, find that process with "
        "`fuser {path}`"
    ),
    sqlite3.SQLITE_LOCKED: "another connection has locked it. Try again",
    sqlite3.SQLITE_INTERRUPT: "the write was interrupted, so nothing was written. Try again",
    sqlite3.SQLITE_FULL: (
        "the disk is full, so nothing was written. Free some space, for example with `df -h` to "
        "find the disk and `du -sh {folder}/*` to find large files, and try again"
    ),
    sqlite3.SQLITE_IOERR: (
        "the disk reported an error. Check the disk and its free space, for example with "
        "`df -h {folder}`, and limits such as a quota (`quota`) or of the size of files "
        "(`ulimit -f`), and try again"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened. Check that the folder exists and that you may write to it, for "
        "example with `ls -ld {folder}`"
    ),
    sqlite3.SQLITE_READONLY: (
        "it is read-only. Make it writable, for example with `chmod u+w {path}*`"
    ),
}
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database",
}
_RESTORE = (
    "Stop nextfire, keep a copy of the file, and restore a backup, "
    "for example with `nextfire restore FILE`"
)


class UnusableDatabaseError(NextfireError):
    """The database file cannot be used: it is damaged, or another program or version wrote it."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        super().__init__(f"Database {path}: {problem}. {remedy}.")


def require_writable(path: Path) -> None:
    """Check the database at *path* and SQLite's files next to it, if they exist. SQLite would open
    read-only ones, and the process could not write even after they are made writable.

    Raises:
        sqlite3.OperationalError: One of them is read-only.
    """
    for file in (path, *(path.with_name(f"{path.name}-{suffix}") for suffix in ("wal", "shm"))):
        if file.exists() and not os.access(file, os.W_OK):
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise error


@contextmanager
def translated(what: str, path: Path) -> Iterator[None]:
    """Translate errors of SQLite while doing *what* in the database at *path*.

    Raises:
        UnavailableError: The database is locked, full or not writable, or the write was
            interrupted. Nothing was written.
        UnusableDatabaseError: The file is damaged, or is not a database.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
        if code in _DAMAGED:
            raise UnusableDatabaseError(path, f"{_DAMAGED[code]} ({error})", _RESTORE) from error
        if code in _RETRYABLE:
            remedy = _RETRYABLE[code].format(path=path, folder=path.parent)
            raise UnavailableError(f"{what}: database {path}: {remedy}.") from error
        raise
