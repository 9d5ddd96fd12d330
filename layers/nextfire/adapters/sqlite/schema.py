"""The schema of the database file, as a list of migrations.

The number of applied migrations is the file's `user_version`. A migration never changes after a
release: files in use have applied it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from nextfire.adapters.sqlite.errors import UnusableDatabaseError

APPLICATION_ID = 0x6E666972
"""Marks a SQLite file as a database of nextfire."""

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE jobs (
            tenant TEXT NOT NULL, job_id TEXT NOT NULL, item TEXT NOT NULL,
            PRIMARY KEY (tenant, job_id)) STRICT""",
        "CREATE TABLE job_counts (tenant TEXT PRIMARY KEY, jobs INTEGER NOT NULL) STRICT",
        """CREATE TABLE due (
            bucket TEXT NOT NULL, entry TEXT NOT NULL, item TEXT NOT NULL,
            PRIMARY KEY (bucket, entry)) STRICT, WITHOUT ROWID""",
        """CREATE TABLE runs (
            job TEXT NOT NULL, run_id TEXT NOT NULL, item TEXT NOT NULL,
            attention TEXT, attention_at TEXT, expires_at INTEGER,
            PRIMARY KEY (job, run_id)) STRICT""",
        """CREATE INDEX runs_attention ON runs (attention, attention_at)
            WHERE attention IS NOT NULL""",
        "CREATE INDEX runs_expiry ON runs (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE TABLE control (id TEXT PRIMARY KEY, item TEXT NOT NULL) STRICT, WITHOUT ROWID",
        """CREATE TABLE keys (
            tenant TEXT NOT NULL, key_id TEXT NOT NULL, item TEXT NOT NULL, forget_at INTEGER,
            PRIMARY KEY (tenant, key_id)) STRICT, WITHOUT ROWID""",
        """CREATE TABLE requests (
            request TEXT PRIMARY KEY, item TEXT NOT NULL, expires_at INTEGER) STRICT""",
        "CREATE INDEX requests_expiry ON requests (expires_at)",
        """CREATE TABLE buckets (
            name TEXT PRIMARY KEY, spent INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE TABLE endpoints (
            owner TEXT NOT NULL, destination TEXT NOT NULL, item TEXT NOT NULL, expires_at INTEGER,
            PRIMARY KEY (owner, destination)) STRICT, WITHOUT ROWID""",
        """CREATE TABLE messages (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            queue TEXT NOT NULL, in_group TEXT NOT NULL, body TEXT NOT NULL, failure TEXT,
            hidden_from INTEGER, hidden_until INTEGER,
            receives INTEGER NOT NULL DEFAULT 0) STRICT""",
        "CREATE INDEX messages_in_group ON messages (queue, in_group, number)",
        "CREATE INDEX messages_in_order ON messages (queue, number)",
        """CREATE INDEX messages_hidden ON messages (queue, hidden_until)
            WHERE hidden_until IS NOT NULL""",
        """CREATE TABLE sent (
            queue TEXT NOT NULL, in_group TEXT NOT NULL, dedup TEXT NOT NULL,
            sent_at INTEGER NOT NULL,
            PRIMARY KEY (queue, in_group, dedup)) STRICT, WITHOUT ROWID""",
        "CREATE INDEX sent_at ON sent (sent_at)",
        """CREATE TABLE events (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL, at INTEGER NOT NULL, detail TEXT NOT NULL) STRICT""",
    ),
    (
        """ALTER TABLE runs ADD COLUMN tenant TEXT
            GENERATED ALWAYS AS (substr(job, 1, instr(job, '/') - 1)) VIRTUAL""",
        """ALTER TABLE runs ADD COLUMN state TEXT
            GENERATED ALWAYS AS (json_extract(item, '$.state.S')) VIRTUAL""",
        """ALTER TABLE runs ADD COLUMN pool TEXT
            GENERATED ALWAYS AS (json_extract(item, '$.pool.S')) VIRTUAL""",
        # The end, else the start, else the scheduled instant, which the run's id begins with.
        """ALTER TABLE runs ADD COLUMN step_at TEXT GENERATED ALWAYS AS (rtrim(coalesce(
            json_extract(item, '$.finished_at.S'), json_extract(item, '$.started_at.S'),
            substr(run_id, 1, 4) || '-' || substr(run_id, 5, 2) || '-' || substr(run_id, 7, 5)
            || ':' || substr(run_id, 12, 2) || ':' || substr(run_id, 14, 2)
            || iif(substr(run_id, 16, 3) = '000', '', '.' || substr(run_id, 16, 3))), 'Z'))
            VIRTUAL""",
        """CREATE INDEX runs_steps ON runs (tenant, state, step_at, job, run_id)
            WHERE state IS NOT NULL""",
    ),
)

_INDEX = "runs_list"
_INDEXED = (
    "DROP INDEX IF EXISTS runs_steps",
    f"""CREATE INDEX IF NOT EXISTS {_INDEX} ON runs (tenant, state, step_at, job, run_id, pool)
        WHERE state IS NOT NULL""",
)
"""Replaces the index of the second migration, so that a list of the runs of a pool reads only these
from the table. Not a migration: earlier versions use it too, and would reject a file with another
migration.
"""


def is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether `migrate` would change nothing. Raises as `migrate`."""
    return _version(connection, path) == len(MIGRATIONS) and bool(
        connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (_INDEX,)).fetchone()
    )


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply the missing migrations to the database at *path*, all or none.

    *connection* is in autocommit mode. Concurrent callers wait for each other.

    Raises:
        UnusableDatabaseError: Another program or a newer version wrote the file.
    """
    if is_current(connection, path):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in (*MIGRATIONS[_version(connection, path) :], _INDEXED):
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk ends it
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The number of migrations that the file has."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        raise UnusableDatabaseError(
            path,
            "another program wrote it",
            "Move it away, or run `nextfire up` in another folder",
        )
    if version > len(MIGRATIONS):
        raise UnusableDatabaseError(
            path,
            f"it has schema version {version}, and this version of nextfire knows only versions "
            f"up to {len(MIGRATIONS)}",
            "Install the version of nextfire that wrote it or a later one, for example with "
            "`pip install -U 'nextfire[local]'`",
        )
    return int(version)
