"""Parked entries: due entries that wait in the buckets of the next hour."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from itertools import islice

from nextfire.dataclass import dataclass, field
from nextfire.domain.due import PARKED_AT_MOST, BrokenEntry, Slot, StoredEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports.due import DueStore

READS_AT_MOST = 16
"""Queries for parked entries per shard and poll: a new lease holder reads an hour in five polls."""
_NEVER = datetime.min.replace(tzinfo=UTC)
ENTRIES_AT_MOST = 500
"""Parked entries read per shard and poll."""


@dataclass(slots=True)
class _Place:
    """How far a bucket has been read. `seen`: the tenants that have entries in it."""

    minute: datetime
    after: Slot | None = None
    seen: set[str] = field(default_factory=set)


class ParkedEntries:
    """Finds parked entries when their tenants can continue. Used by several threads.

    It remembers which tenants have entries in which bucket. This is only a hint: a new lease holder
    starts without it, and reads each bucket of the next hour once.
    """

    def __init__(self, due: DueStore, *, none: bool = False) -> None:
        """*none*: it is known that no entry is parked, so that the hour need not be read."""
        self._due = due
        self._none = none
        self._lock = threading.Lock()
        self._known: dict[int, dict[datetime, set[str]]] = defaultdict(dict)
        self._unread: dict[int, list[datetime]] = {}
        self._places: dict[int, _Place] = {}
        self._last: dict[int, datetime] = {}
        self._wanted: Collection[str] = ()

    @property
    def tenants(self) -> set[str]:
        """The tenants that may have parked entries."""
        with self._lock:
            buckets = (tenants for known in self._known.values() for tenants in known.values())
            return set().union(*buckets)

    def might_be_any(self, shards: Collection[int]) -> bool:
        """Whether an entry of *shards* may be parked: one is known, or a bucket is not yet read."""
        with self._lock:
            unread = any(shard not in self._unread or self._unread[shard] for shard in shards)
            return unread or any(self._known[shard] for shard in shards)

    def note(self, minute: datetime, tenants: Collection[str]) -> None:
        """Remember that entries of *tenants* were parked in the buckets of *minute*."""
        with self._lock:
            for shard, known in self._known.items():
                known.setdefault(minute, set()).update(tenants)
                place = self._places.get(shard)
                if place is not None and place.minute == minute:
                    place.seen.update(tenants)

    def look_for(self, wanted: Collection[str]) -> None:
        """Read the entries of the *wanted* tenants, in that order of priority."""
        with self._lock:
            self._wanted = wanted

    def read(self, shard: int, now: datetime) -> list[StoredEntry | BrokenEntry]:
        """The next parked entries of *shard*, including other tenants'; each poll reads further.

        Raises:
            UnavailableError: A read failed, and none before it has found entries.
        """
        found: list[StoredEntry | BrokenEntry] = []
        for _ in range(READS_AT_MOST):
            place = self._next(shard, now)
            if place is None or len(found) >= ENTRIES_AT_MOST:
                break
            rest = ENTRIES_AT_MOST - len(found)
            try:
                page = self._page(place, shard, rest)
            except UnavailableError:
                if not found:
                    raise
                break  # the next poll continues there
            found += page
            self._advance(shard, place, page, ended=len(page) < rest)
        return found

    def _page(self, place: _Place, shard: int, most: int) -> list[StoredEntry | BrokenEntry]:
        entries = self._due.read(
            place.minute,
            shard,
            before=place.minute,
            after=place.after,
            consistent=True,
            page=most,
        )
        return [*islice(entries, most)]

    def _next(self, shard: int, now: datetime) -> _Place | None:
        """The bucket to read next: partly read, not yet known, or of a wanted tenant."""
        with self._lock:
            present = floor_minute(now)
            if shard not in self._unread:
                minutes = range(1, 1 if self._none else PARKED_AT_MOST // MINUTE + 2)
                self._unread[shard] = [present + n * MINUTE for n in minutes]
            known = self._known[shard]
            for minute in [each for each in known if each <= present]:
                del known[minute]  # present buckets are read in any case
            self._unread[shard] = [m for m in self._unread[shard] if m > present]
            place = self._places.get(shard)
            if place is not None and place.minute > present:
                return place if self._wanted or place.minute in self._unread[shard] else None
            self._places.pop(shard, None)
            following = self._next_minute(shard)
            if following is None:
                return None
            self._places[shard] = place = _Place(following)
            return place

    def _next_minute(self, shard: int) -> datetime | None:
        if self._unread[shard]:
            return self._unread[shard][0]
        last = self._last.get(shard, _NEVER)
        for tenant in self._wanted:
            minutes = sorted(m for m, of in self._known[shard].items() if tenant in of)
            if minutes:
                return next((minute for minute in minutes if minute > last), minutes[0])
        return None

    def _advance(
        self,
        shard: int,
        place: _Place,
        page: list[StoredEntry | BrokenEntry],
        *,
        ended: bool,
    ) -> None:
        with self._lock:
            place.seen.update(s.entry.job.tenant for s in page if isinstance(s, StoredEntry))
            known, minute = self._known[shard], place.minute
            known.setdefault(minute, set()).update(place.seen)
            if not ended:
                place.after = page[-1].slot
                return
            if place.seen:
                known[minute] = place.seen
            else:
                del known[minute]
            self._places.pop(shard, None)
            self._last[shard] = minute
            if minute in self._unread[shard]:
                self._unread[shard].remove(minute)


class QuotaSpread:
    """Estimates which minute has quota left for an entry that waits for its tenant's quota."""

    def __init__(self) -> None:
        self._filled: dict[str, tuple[datetime, int]] = {}

    def minute_for(self, tenant: str, rate: int, now: datetime) -> datetime:
        """The minute for the next entry of *tenant*, which may send *rate* runs in each minute.

        Each minute gets one entry more than that, so that the used-up quota is noticed.
        """
        first, last = floor_minute(now) + MINUTE, floor_minute(now) + PARKED_AT_MOST
        minute, placed = self._filled.get(tenant, (first, 0))
        if minute < first:
            minute, placed = first, 0
        elif placed > rate and minute < last:
            minute, placed = minute + MINUTE, 0
        self._filled[tenant] = minute, placed + 1
        return minute
