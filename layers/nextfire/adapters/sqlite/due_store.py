"""Due entries in SQLite."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from nextfire.adapters.dynamodb.due_items import (
    ENTRY,
    QUARANTINE_BUCKET,
    decode_entry,
    encode_entry,
    entry_item,
)
from nextfire.adapters.dynamodb.fields import names
from nextfire.adapters.dynamodb.items import Item, to_item
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import DUE, END
from nextfire.adapters.sqlite.table import after as least_after
from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.instants import isoformat, to_ms

_PAGE = 1_000


class SqliteDueStore:
    """`DueStore` in *database*, with *shards* shards."""

    def __init__(self, database: Database, *, shards: int = 1) -> None:
        self._database = database
        self._shards = shards

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,  # noqa: ARG002 — all reads are
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        bucket, most = bucket_name(minute, shard), min(page or _PAGE, _PAGE)
        low = "" if since is None else f"{to_ms(since):013d}"
        low = low if after is None else least_after(after.sort_key)
        high = END if before is None else f"{to_ms(before):013d}"
        while True:
            with self._database.reading("read due entries") as connection:
                items = DUE.query(connection, bucket, low, high, limit=most)
            yield from map(decode_entry, items)
            if len(items) < most:
                return
            low = least_after(items[-1]["entry"]["S"])

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        with self._database.reading("check slots") as connection:
            return {
                slot
                for slot in {*slots}
                if DUE.get(connection, slot.bucket, slot.sort_key) is not None
            }

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        items = [entry_item(entry, now, self._shards) for entry in entries]
        if items:
            with self._database.writing("put due entries") as connection:
                DUE.put(connection, *items)
        return {*entries}

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        items = [encode_entry(replace(each.entry, held=True), each.slot) for each in entries]
        if items:
            with self._database.writing("mark due entries") as connection:
                DUE.put(connection, *items)

    def delete(self, slots: Collection[Slot]) -> set[Slot]:
        if slots:
            with self._database.writing("delete due entries") as connection:
                DUE.delete(connection, *((slot.bucket, slot.sort_key) for slot in slots))
        return {*slots}

    def keep(self, entry: BrokenEntry, now: datetime) -> None:
        with self._database.writing("quarantine due entry") as connection:
            DUE.put(connection, _kept(entry, now))

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        slot = entry.slot
        with self._database.writing("quarantine due entry") as connection:
            DUE.put(connection, _kept(entry, now))
            stored = DUE.get(connection, slot.bucket, slot.sort_key)
            if stored is not None and _attributes(stored) == _attributes(entry.raw):
                DUE.delete(connection, (slot.bucket, slot.sort_key))


def _kept(entry: BrokenEntry, now: datetime) -> Item:
    """The quarantined copy of *entry*."""
    return dict(_attributes(entry.raw)) | to_item(
        {
            "bucket": QUARANTINE_BUCKET,
            "entry": f"{entry.slot.bucket}/{entry.slot.sort_key}",
            "error": entry.error,
            "quarantined_at": isoformat(now),
        }
    )


def _attributes(raw: object) -> dict[str, Any]:
    """The attributes of an entry in the item *raw*: a valid entry may have replaced it."""
    item = raw if isinstance(raw, Mapping) else {}
    return {name: item[name] for name in names(ENTRY) if name in item}
