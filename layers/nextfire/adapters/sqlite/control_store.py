"""Leases, cursors, the audit and the quotas of runs in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from nextfire.adapters.dynamodb.control_items import (
    AUDIT,
    LAST_EPOCH,
    LEASE,
    BrokenAudit,
    BrokenLease,
    Cursor,
    TakenRuns,
    audit_id,
    cursor_id,
    decode_audit,
    decode_cursor,
    decode_lease,
    decode_taken,
    encode_audit,
    encode_cursor,
    encode_id,
    encode_lease,
    encode_taken,
    lease_id,
    taken_id,
)
from nextfire.adapters.dynamodb.fields import Field, names
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import CONTROL
from nextfire.domain.audit_pass import Audit
from nextfire.domain.ports.control import Lease, cursors_to_set


class SqliteControlStore:
    """`ControlStore` in *database*. Items that do not decode are handled as in
    `DynamoDbControlStore`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def lease(self, group: int, *, consistent: bool = False) -> Lease | None:  # noqa: ARG002
        item = self._get("read lease", lease_id(group))
        return None if item is None else decode_lease(item)

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        name = lease_id(group)
        with self._database.writing("replace lease") as connection:
            item = CONTROL.get(connection, name)
            if not _is_lease(item, was):
                return item is not None and decode_lease(item) == to
            CONTROL.put(connection, encode_id(name) | encode_lease(to))
            return True

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        with self._database.writing("seed cursors") as connection:
            items = _cursors(connection, range(shards))
            decoded = {shard: decode_cursor(item) for shard, item in items.items()}
            for shard, cursor in cursors_to_set(decoded, shards, minute).items():
                _set_cursor(connection, shard, Cursor(cursor, 0))

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        with self._database.reading("read cursors") as connection:
            items = _cursors(connection, shards)
        decoded = {shard: decode_cursor(item) for shard, item in items.items()}
        return {shard: cursor for shard, cursor in decoded.items() if cursor is not None}

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        with self._database.writing("move cursor") as connection:
            item = CONTROL.get(connection, cursor_id(shard)) or {}
            # An invalid epoch does not block the write: the holder's value repairs the item.
            by = item.get("epoch", {}).get("N")
            if by is not None and epoch < float(by) <= LAST_EPOCH:
                return False
            _set_cursor(connection, shard, Cursor(minute, epoch))
            return True

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        name = taken_id(tenant)
        with self._database.writing("take runs") as connection:
            item = CONTROL.get(connection, name) or {}
            taken = decode_taken(item, minute)
            granted = max(min(wanted, most - (taken or 0)), 0)
            if taken is None:
                item = encode_id(name) | encode_taken(TakenRuns(minute, granted))
            else:  # of that minute or, if this clock is behind, of the next
                item |= {"taken": {"N": str(taken + granted)}}
            if granted:
                CONTROL.put(connection, item)
            return granted

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        item = self._get("read taken runs", taken_id(tenant))
        return decode_taken(item or {}, minute) or 0

    def audit(self, part: int | None = None) -> Audit | None:
        item = self._get("read audit", audit_id(part))
        return None if item is None else decode_audit(item)

    def replace_audit(self, was: Audit | None, to: Audit, part: int | None = None) -> bool:
        name = audit_id(part)
        new = encode_id(name) | encode_audit(to)
        with self._database.writing("replace audit") as connection:
            item = CONTROL.get(connection, name)
            if not _is_audit(item, was):
                return item == new
            CONTROL.put(connection, new)
            return True

    def _get(self, what: str, name: str) -> Item | None:
        with self._database.reading(what) as connection:
            return CONTROL.get(connection, name)


def _is_lease(item: Item | None, lease: Lease | None) -> bool:
    if item is None or lease is None:
        return item is None and lease is None
    if isinstance(lease, BrokenLease):
        return _unchanged(item, lease.raw, LEASE)
    stored = decode_lease(item)
    same = (stored.epoch, stored.beat) == (lease.epoch, lease.beat)
    return same and not isinstance(stored, BrokenLease)


def _is_audit(item: Item | None, audit: Audit | None) -> bool:
    if item is None or audit is None:
        return item is None and audit is None
    raw = audit.raw if isinstance(audit, BrokenAudit) else encode_audit(audit)
    return _unchanged(item, raw, AUDIT)


def _unchanged(item: Item, was: Item, fields: Iterable[Field[Any]]) -> bool:
    return all(item.get(name) == was.get(name) for name in names(fields))


def _cursors(connection: sqlite3.Connection, shards: Collection[int]) -> dict[int, Item]:
    found = {shard: CONTROL.get(connection, cursor_id(shard)) for shard in shards}
    return {shard: item for shard, item in found.items() if item is not None}


def _set_cursor(connection: sqlite3.Connection, shard: int, cursor: Cursor) -> None:
    CONTROL.put(connection, encode_id(cursor_id(shard)) | encode_cursor(cursor))
