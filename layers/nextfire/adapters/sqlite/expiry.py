"""Removes what has expired: the work of DynamoDB's time to live (TTL), and of EventBridge."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.adapters.sqlite.database import Database
from nextfire.domain.instants import to_ms
from nextfire.domain.request_limits import to_us

_BATCH = 500
"""Rows of one transaction: other writers wait for it."""
_BUCKETS_KEPT = timedelta(hours=1)
_EVENTS_KEPT = timedelta(days=90)
_DEAD_LETTERS_KEPT = timedelta(days=14)
_EXPIRED = {
    "runs": "rowid IN (SELECT rowid FROM runs WHERE expires_at < :seconds LIMIT :most)",
    "requests": "rowid IN (SELECT rowid FROM requests WHERE expires_at < :seconds LIMIT :most)",
    "endpoints": (
        "(owner, destination) IN "
        "(SELECT owner, destination FROM endpoints WHERE expires_at < :seconds LIMIT :most)"
    ),
    "keys": (
        "(tenant, key_id) IN "
        "(SELECT tenant, key_id FROM keys WHERE forget_at < :seconds LIMIT :most)"
    ),
    "buckets": "name IN (SELECT name FROM buckets WHERE spent < :full LIMIT :most)",
    "events": "number IN (SELECT number FROM events WHERE at < :events LIMIT :most)",
    "messages": (
        "number IN (SELECT number FROM messages "
        "WHERE failure IS NOT NULL AND hidden_from < :dead LIMIT :most)"
    ),
}


def remove_expired(database: Database, now: datetime) -> int:
    """Remove the records, requests, keys, endpoints, token buckets, events and dead letters that
    expired before *now*, in small transactions. Returns the number of removed rows.
    """
    values = {
        "seconds": to_ms(now) // 1000,
        "full": to_us(now - _BUCKETS_KEPT),
        "events": to_ms(now - _EVENTS_KEPT),
        "dead": to_ms(now - _DEAD_LETTERS_KEPT),
        "most": _BATCH,
    }
    return sum(_remove(database, table, where, values) for table, where in _EXPIRED.items())


def _remove(database: Database, table: str, where: str, values: dict[str, int]) -> int:
    removed = 0
    while True:
        with database.writing(f"remove expired {table}") as connection:
            done = connection.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608
        removed += done.rowcount
        if done.rowcount < _BATCH:
            return removed
