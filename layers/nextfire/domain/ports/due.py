"""The store of due entries."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Protocol

from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry


class DueStore(Protocol):
    """Stores due entries in buckets, one per minute and shard."""

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
        """Iterate over the entries of one bucket by due instant. Pages are read on demand.

        Args:
            minute: The bucket's minute.
            shard: The bucket's shard.
            before: Omit entries due at or after this; None reads the whole bucket, including keys
                that are not instants.
            consistent: See every write that was acknowledged before the call.
            since: Omit entries due before this; requires *before*.
            after: Start after this slot of the bucket, which may be empty; requires *before*,
                excludes *since*.
            page: Maximum page size; None: the store's maximum.
        """

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        """Return those of *slots* that are occupied, by consistent reads."""

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        """Store *entries*, each in its bucket for *now*. Returns those that were stored."""

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        """Set `held` on the stored *entries*. Best effort."""

    def delete(self, slots: Collection[Slot]) -> set[Slot]:
        """Delete the items in *slots*. Returns those that are deleted; entries that remain are read
        and decided again, unless they are deleted later.
        """

    def keep(self, entry: BrokenEntry, now: datetime) -> None:
        """Copy an undecodable entry, with its error, to a bucket that no watcher reads."""

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        """`keep` it, then delete it from its slot, unless another entry has replaced it."""
