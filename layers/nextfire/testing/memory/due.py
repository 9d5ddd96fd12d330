"""Due entries in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.ids import JOB_ID, JobKey
from nextfire.domain.instants import from_ms, to_ms

_STAMP = 13


Junk = Mapping[str, str]
"""An item that does not decode."""


class MemoryDueStore:
    """`DueStore`."""

    def __init__(self, *, shards: int = 1) -> None:
        self.shards = shards
        self.items: dict[Slot, DueEntry | Junk] = {}
        self.page = 1_000
        self.quarantined: list[BrokenEntry] = []
        self.refuses: Callable[[DueEntry], bool] = lambda _: False
        self.deletes = True
        self._frozen: dict[Slot, DueEntry | Junk] | None = None
        self._lock = threading.Lock()

    @property
    def entries(self) -> list[DueEntry]:
        """The decodable entries, by due instant."""
        found = (item for item in self.items.values() if isinstance(item, DueEntry))
        return sorted(found, key=lambda entry: entry.sort_key)

    def freeze(self) -> None:
        """From now on, eventually consistent reads see the current state."""
        self._frozen = dict(self.items)

    def spoil(self, slot: Slot, **values: str) -> None:
        """Put an item into *slot* that does not decode as an entry."""
        self.items[slot] = values

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        most = min(self.page, page or self.page)
        seen = self.items if consistent or self._frozen is None else self._frozen
        bucket = bucket_name(minute, shard)
        first = "" if since is None else f"{to_ms(since):013d}"
        first = first if after is None else f"{after.sort_key}\0"
        limit = None if before is None else f"{to_ms(before):013d}"

        def page_from(first: str) -> list[StoredEntry | BrokenEntry]:
            with self._lock:
                keys = sorted(
                    slot.sort_key
                    for slot in seen
                    if slot.bucket == bucket
                    and slot.sort_key >= first
                    and (limit is None or slot.sort_key < limit)
                )[:most]
                return [_read(slot, seen[slot]) for slot in (Slot(bucket, key) for key in keys)]

        while found := page_from(first):
            yield from found
            first = f"{found[-1].slot.sort_key}\0"

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        with self._lock:
            return {slot for slot in slots if slot in self.items}

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        stored = [entry for entry in entries if not self.refuses(entry)]
        with self._lock:
            for entry in stored:  # of those with the same slot, the last one stays
                self.items[Slot(entry.bucket(now, self.shards), entry.sort_key)] = entry
        return {*stored}

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        with self._lock:
            for each in entries:
                if not self.refuses(each.entry):
                    self.items[each.slot] = replace(each.entry, held=True)

    def delete(self, slots: Collection[Slot]) -> set[Slot]:
        with self._lock:
            for slot in slots:
                if self.deletes:
                    self.items.pop(slot, None)
        return {*slots} if self.deletes else set()

    def keep(self, entry: BrokenEntry, now: datetime) -> None:  # noqa: ARG002
        if not any(kept.raw is entry.raw for kept in self.quarantined):
            self.quarantined.append(entry)

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        with self._lock:
            self.keep(entry, now)
            if self.items.get(entry.slot) is entry.raw:
                del self.items[entry.slot]


def _read(slot: Slot, item: DueEntry | Junk) -> StoredEntry | BrokenEntry:
    return StoredEntry(slot, item) if isinstance(item, DueEntry) else _broken(slot, item)


def _broken(slot: Slot, item: Junk) -> BrokenEntry:
    stamp, hash_sign, _ = slot.sort_key.partition("#")
    whole = bool(hash_sign) and len(stamp) == _STAMP and stamp.isdigit()
    tenant, job_id = item.get("tenant", ""), item.get("job_id", "")
    owned = tenant and JOB_ID.fullmatch(job_id)
    return BrokenEntry(
        slot,
        item,
        "does not decode",
        from_ms(int(stamp)) if whole else None,
        JobKey(tenant, job_id) if owned else None,
    )
