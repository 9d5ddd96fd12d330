"""The pools' FIFO queues and dead-letter queues in SQLite, by the rules of SQS.

Times are in milliseconds of the machine's clock, read inside the transaction, so that they are in
the order of the transactions. If the clock is set back, a message that was hidden later than now is
visible: the lease of its run decides who may work on it.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Collection, Sequence
from datetime import timedelta

from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.deferred_signals import signals_deferred
from nextfire.dataclass import dataclass, field
from nextfire.domain.instants import to_ms
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.queues import DEDUP_WINDOW, MAX_FAILURE, MAX_RECEIVES

RECEIVED_TOO_OFTEN = "received too often"
_POLL = timedelta(milliseconds=40)
"""How often a waiting worker looks for messages. These wake-ups are most of an idle stack's CPU."""
_LOOK_AGAIN = timedelta(milliseconds=250)
"""How often a waiting receive looks for messages that became visible again."""
_DLQ = "#dead"
"""Suffix of the name of a pool's dead-letter queue. Names of pools do not contain it."""

_BUSY = (
    "SELECT in_group FROM messages WHERE queue = :queue AND hidden_until > :now "
    "AND hidden_from <= :now"
)
_TAKE = (
    "SELECT number, in_group, body, receives FROM messages "  # noqa: S608 — constants
    f"WHERE queue = :queue AND in_group NOT IN ({_BUSY}) ORDER BY number LIMIT :most"
)
_WAITS = f"SELECT 1 FROM messages WHERE queue = :queue AND in_group NOT IN ({_BUSY}) LIMIT 1"  # noqa: S608 — constants
_HELD = "number = ? AND receives = ? AND hidden_until > ?"


class SqliteRunQueue:
    """`RunQueue` in *database*, with a queue for each of *pools*."""

    def __init__(self, database: Database, *, clock: Clock, pools: Collection[str]) -> None:
        self._database = database
        self._clock = clock
        self._pools = frozenset(pools)

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        rows = [
            (pool, message.group, message.dedup, message.encode(), None)
            for pool, message in messages
            if pool in self._pools
        ]
        if rows:
            with self._database.writing("send messages") as connection:
                _send(connection, to_ms(self._clock.now()), rows)
        return {index for index, (pool, _) in enumerate(messages) if pool in self._pools}

    def backlog(self, pool: str) -> int:
        with self._database.reading("read backlog") as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM messages WHERE queue = ?", (pool,)
            ).fetchone()
        return int(count)


class SqliteDeadLetters:
    """`DeadLetters` of *pool* in *database*."""

    def __init__(self, database: Database, *, clock: Clock, pool: str) -> None:
        self._database = database
        self._clock = clock
        self._queue = pool + _DLQ

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        row = (self._queue, dedup, dedup, body, failure[:MAX_FAILURE] or "-")
        with self._database.writing("put dead letter") as connection:
            _send(connection, to_ms(self._clock.now()), [row])

    def list(self, *, limit: int = 100) -> Sequence[tuple[str, str]]:
        """Return up to *limit* letters, oldest first: body and failure."""
        with self._database.reading("list dead letters") as connection:
            return connection.execute(
                "SELECT body, failure FROM messages WHERE queue = ? ORDER BY number LIMIT ?",
                (self._queue, limit),
            ).fetchall()


@dataclass(slots=True)
class SqliteDelivery:
    """`FifoDelivery` of the message *number*, received for the *receives*-th time."""

    database: Database
    clock: Clock
    number: int
    receives: int
    body: str
    group: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def message_id(self) -> str:
        return str(self.number)

    @property
    def receipt_handle(self) -> str:
        """Identifies this receive of the message in a worker's journal."""
        return f"{self.number}:{self.receives}"

    def hide(self, duration: timedelta) -> None:
        _hide(self.database, self.clock, [self], duration)


class SqliteInbox:
    """`Inbox` of *pool* in *database*."""

    def __init__(
        self, database: Database, *, clock: Clock, pool: str, max_receives: int = MAX_RECEIVES
    ) -> None:
        self._database = database
        self._clock = clock
        self._pool = pool
        self._max_receives = max_receives

    def receive(
        self, most: int, *, wait: timedelta, hidden_for: timedelta
    ) -> Sequence[SqliteDelivery]:
        """See `Inbox.receive`."""
        # Counted, not measured: the clock may be set.
        polls, look_again, seen = wait // _POLL, _LOOK_AGAIN // _POLL, 0
        for poll in range(polls + 1):
            version = self._database.version()
            if poll == 0 or version != seen or poll % look_again == 0:
                seen = version
                if self._waits() and (found := self._take_unless_stopped(most, hidden_for)):
                    return found
            if poll < polls:
                self._clock.sleep(_POLL)
        return []

    def acknowledge(self, deliveries: Sequence[SqliteDelivery], /) -> Sequence[str]:
        """See `Inbox.acknowledge`. A receipt that has expired is rejected."""
        if not deliveries:
            return []
        expired: list[str] = []
        with self._database.writing("acknowledge messages") as connection:
            now = to_ms(self._clock.now())
            for each in deliveries:
                done = connection.execute(
                    f"DELETE FROM messages WHERE {_HELD}",  # noqa: S608 — a constant
                    (each.number, each.receives, now),
                )
                if done.rowcount == 0:
                    expired.append(f"{each.message_id}: the receipt has expired")
        return expired

    def show(self, deliveries: Sequence[SqliteDelivery]) -> list[str]:
        """Make *deliveries* visible to other consumers immediately. Returns no failures."""
        _hide(self._database, self._clock, deliveries, timedelta())
        return []

    def _waits(self) -> bool:
        """Whether a message can be received now. Only then a transaction is needed."""
        values = {"queue": self._pool, "now": to_ms(self._clock.now())}
        with self._database.reading("receive messages") as connection:
            return connection.execute(_WAITS, values).fetchone() is not None

    def _take_unless_stopped(self, most: int, hidden_for: timedelta) -> list[SqliteDelivery]:
        """Like `_take`. Messages that a stopped worker took would be hidden for a lease."""
        with signals_deferred() as came:
            found = self._take(most, hidden_for)
            if came:
                self.show(found)
                found = []
        return found

    def _take(self, most: int, hidden_for: timedelta) -> list[SqliteDelivery]:
        with self._database.writing("receive messages") as connection:
            now = to_ms(self._clock.now())
            values = {"queue": self._pool, "now": now, "most": most}
            rows = connection.execute(_TAKE, values).fetchall()
            spent = [row for row in rows if row[3] >= self._max_receives]
            taken = [row for row in rows if row[3] < self._max_receives]
            connection.executemany(
                "UPDATE messages SET queue = ?, failure = ?, hidden_until = NULL WHERE number = ?",
                [(self._pool + _DLQ, RECEIVED_TOO_OFTEN, number) for number, *_ in spent],
            )
            until = now + hidden_for // timedelta(milliseconds=1)
            connection.executemany(
                "UPDATE messages SET receives = receives + 1, hidden_from = ?, hidden_until = ? "
                "WHERE number = ?",
                [(now, until, number) for number, *_ in taken],
            )
        return [
            SqliteDelivery(self._database, self._clock, number, receives + 1, body, group)
            for number, group, body, receives in taken
        ]


def _send(
    connection: sqlite3.Connection,
    now: int,
    rows: Sequence[tuple[str, str, str, str, str | None]],
) -> None:
    """Store *rows* of queue, group, deduplication id, body and failure, except for those that were
    sent within the window.
    """
    window = DEDUP_WINDOW // timedelta(milliseconds=1)
    connection.execute("DELETE FROM sent WHERE sent_at <= ? OR sent_at > ?", (now - window, now))
    for queue, group, dedup, body, failure in rows:
        new = connection.execute(
            "INSERT INTO sent (queue, in_group, dedup, sent_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (queue, group, dedup, now),
        )
        if new.rowcount:
            connection.execute(
                "INSERT INTO messages (queue, in_group, body, failure, hidden_from) "
                "VALUES (?, ?, ?, ?, ?)",
                # No one receives dead letters. They expire.
                (queue, group, body, failure, None if failure is None else now),
            )


def _hide(
    database: Database, clock: Clock, deliveries: Sequence[SqliteDelivery], duration: timedelta
) -> None:
    if not deliveries:
        return
    with database.writing("change message visibility") as connection:
        now = to_ms(clock.now())
        until = now + max(duration, timedelta()) // timedelta(milliseconds=1)
        connection.executemany(
            f"UPDATE messages SET hidden_until = ? WHERE {_HELD}",  # noqa: S608 — a constant
            [(until, each.number, each.receives, now) for each in deliveries],
        )
