"""The event bus and the audit log in SQLite."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime

from nextfire.adapters.sqlite.database import Database
from nextfire.domain.chain import Batch, BrokenChainError
from nextfire.domain.events import Event, EventKind
from nextfire.domain.instants import from_ms, parse_instant, to_ms


class SqliteEvents:
    """`Events` that keeps the published events in *database* until `remove_expired` removes
    them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, event: Event) -> None:
        with self._database.writing("put event") as connection:
            connection.execute(
                "INSERT INTO events (kind, at, detail) VALUES (?, ?, ?)",
                (event.kind.value, to_ms(event.at), json.dumps(event.detail)),
            )

    def list(self, *, after: int = 0, limit: int = 100) -> Sequence[tuple[int, Event]]:
        """Return up to *limit* events with numbers greater than *after*, with their numbers, in
        the order of publication.
        """
        with self._database.reading("list events") as connection:
            rows = connection.execute(
                "SELECT number, kind, detail, at FROM events WHERE number > ? "
                "ORDER BY number LIMIT ?",
                (after, limit),
            )
            return [
                (number, Event(EventKind(kind), json.loads(detail), from_ms(at)))
                for number, kind, detail, at in rows
            ]


class SqliteAuditLog:
    """`AuditLog` in *database*."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def last(self) -> Batch | None:
        with self._database.reading("read audit events") as connection:
            row = connection.execute(
                "SELECT number, events FROM audit_batches ORDER BY number DESC LIMIT 1"
            ).fetchone()
        return None if row is None else _batch(*row)

    def ids_since(self, last: Batch | None, since: datetime) -> Collection[str]:
        with self._database.reading("read audit events") as connection:
            rows = connection.execute(
                "SELECT number, events FROM audit_batches WHERE number <= ? AND recorded_at >= ?",
                (last.number if last else 0, to_ms(since)),
            ).fetchall()
        return {event["id"] for row in rows for event in _batch(*row).events}

    def append(self, batch: Batch) -> bool:
        with self._database.writing("append audit events") as connection:
            (last,) = connection.execute(
                "SELECT coalesce(max(number), 0) FROM audit_batches"
            ).fetchone()
            if batch.number != last + 1:
                return False
            connection.execute(
                "INSERT INTO audit_batches (number, recorded_at, events) VALUES (?, ?, ?)",
                (
                    batch.number,
                    to_ms(parse_instant(batch.recorded_at)),
                    json.dumps(batch.events, ensure_ascii=False),
                ),
            )
            return True


def _batch(number: int, text: str) -> Batch:
    try:
        return Batch(number, json.loads(text))
    except (TypeError, ValueError) as error:
        raise BrokenChainError(f"batch {number}", "its events do not decode") from error
