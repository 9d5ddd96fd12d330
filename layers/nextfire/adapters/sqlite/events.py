"""The event bus in SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nextfire.adapters.sqlite.database import Database
from nextfire.domain.events import Event, EventKind
from nextfire.domain.instants import from_ms, to_ms


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
