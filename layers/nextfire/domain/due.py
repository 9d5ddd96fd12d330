"""Due entries: the one timer of the system. Whatever must happen at an instant is one of these.

An entry lies in the bucket of the minute of max(its due instant, the time it is written), so
nothing is ever written where nobody reads any more; the true due instant is inside, at the head of
its sort key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut, floor_minute, to_ms
from nextfire.domain.run import Trigger

NORMAL_RANK = 1
PARKED_AT_MOST = timedelta(minutes=64)
"""How far ahead the bucket of an entry may be that is due and has to wait; see `is_parked`."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What all due entries have: the job, the creation of it that the entry belongs to, and the
    instant `at` which it is due.

    `rank`: the priority of the job when the entry was written, 0 is the highest. `held`: the entry,
    or its predecessor, is due and had to wait for its pool's queue, its job's turn or its tenant's
    quota. Entries that differ only in `held` are equal.

    Each type hashes only the fields that distinguish its entries: a hash over all fields takes
    three times as long, and sets and dicts of entries are used on every poll.
    """

    job: JobKey
    uid: str
    at: datetime
    rank: int = field(default=NORMAL_RANK, kw_only=True)
    held: bool = field(default=False, compare=False, kw_only=True)

    def bucket(self, now: datetime, shards: int) -> str:
        """Where a writer at *now* puts this entry, with *shards* write shards."""
        return bucket_name(floor_minute(max(self.at, now)), self.job.shard(shards))

    def _key(self, tail: str) -> str:
        """``<epoch ms, 13 digits>#<entry id>``. The id is derived, so writing an entry twice is
        harmless.
        """
        return f"{to_ms(self.at):013d}#{self.uid}#{tail}"


@dataclass(frozen=True, slots=True)
class FireEntry(_Entry):
    """A job's next occurrence; exactly one per active job.

    `version`: the schedule version that made the entry. `occurrence`: the instant that the schedule
    names, if jitter delays the run; else None. `ordinal`: for a job with `maxRuns` the number of
    the occurrence, from 1, since the version began; else 1.
    """

    version: int
    occurrence: datetime | None = None
    ordinal: int = 1

    def __hash__(self) -> int:
        return hash((self.uid, self.at, self.version))

    @property
    def occurs_at(self) -> datetime:
        """The instant that the schedule names; `at` or, with jitter, before it."""
        return self.occurrence or self.at

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        # Jitter may put two occurrences on one instant.
        of_occurrence = f"#{to_ms(self.occurrence)}" if self.occurrence else ""
        return self._key(f"F#{self.version}{of_occurrence}")


@dataclass(frozen=True, slots=True)
class DispatchEntry(_Entry):
    """A run's next dispatch: a retry, or the first dispatch of a run that a user asked for. It does
    not depend on a schedule version.

    `dispatch`: the number of the dispatch to make. `exclusive`: the job's runs share one message
    group. `trigger`: MANUAL or BACKFILL for the first dispatch of a run that a user asked for, else
    SCHEDULE.
    """

    run_id: str
    dispatch: int
    pool: str
    exclusive: bool = False
    trigger: Trigger = Trigger.SCHEDULE

    def __hash__(self) -> int:
        return hash((self.uid, self.at, self.run_id, self.dispatch))

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        return self._key(f"R#{self.run_id}#{self.dispatch}")


@dataclass(frozen=True, slots=True)
class ResumeEntry(_Entry):
    """The end of a job's pause."""

    def __hash__(self) -> int:
        return hash((self.uid, self.at))

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        return self._key("P")


@dataclass(frozen=True, slots=True)
class BackfillEntry(_Entry):
    """The progress of a job's backfill. `request`: the id of the backfill. `ordinal`: the number of
    its next occurrence, from 1.
    """

    request: str
    ordinal: int = 1

    def __hash__(self) -> int:
        return hash((self.uid, self.at, self.ordinal))

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        return self._key(f"B#{self.request}#{self.ordinal}")


DueEntry = FireEntry | DispatchEntry | ResumeEntry | BackfillEntry
"""Something that must happen at an instant."""


class Slot(NamedTuple):
    """The place of a stored entry: its table key. A tuple: slots are hashed 30 times per run."""

    bucket: str
    sort_key: str

    @property
    def minute(self) -> datetime:
        """The bucket's minute."""
        return _minute_of(self.bucket)


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as read from the table."""

    slot: Slot
    entry: DueEntry

    def is_parked(self, now: datetime) -> bool:
        """Whether it was due before its bucket's minute, which is still to come: it waits."""
        minute = self.slot.minute
        return minute > now and self.entry.at < minute


@dataclass(frozen=True, slots=True)
class BrokenEntry:
    """An item of the due table that does not read as an entry. `raw` is as its store has it.

    `at` and `job` are what could be made out of it: enough to rebuild the job's chain. `foreign`:
    it may be of a kind that a newer version of this code knows.
    """

    slot: Slot
    raw: object
    error: str
    at: datetime | None
    job: JobKey | None
    foreign: bool = False


def fire(
    job: JobKey,
    uid: str,
    version: int,
    at: datetime,
    *,
    put_off: timedelta = timedelta(),
    ordinal: int = 1,
    rank: int = NORMAL_RANK,
) -> FireEntry:
    """The entry for the occurrence at *at*, due *put_off* later."""
    at = cut(at)
    occurrence = at if put_off else None
    return FireEntry(job, uid, at + put_off, version, occurrence, ordinal, rank=rank)


@lru_cache(maxsize=4096)
def _minute_of(bucket: str) -> datetime:
    minute, _, _ = bucket.partition("#")
    return datetime.strptime(minute, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)


@lru_cache(maxsize=4096)
def bucket_name(minute: datetime, shard: int) -> str:
    """``2026-05-24T10:00Z#007``."""
    return f"{minute.astimezone(UTC):%Y-%m-%dT%H:%MZ}#{shard:03d}"
