"""Due entries: the timers of the system. Every timed action is a due entry.

An entry is stored in the bucket of the minute of max(due instant, time of writing). So entries are
never written to a bucket that watchers no longer read. The sort key starts with the due instant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from nextfire.dataclass import dataclass, field
from nextfire.domain.ids import JobKey, RunKey, run_id
from nextfire.domain.instants import cut, floor_minute, to_ms
from nextfire.domain.run import Trigger
from nextfire.domain.zones import ZoneReading

NORMAL_RANK = 1
PARKED_AT_MOST = timedelta(minutes=64)
"""How far ahead the bucket of a due entry that has to wait may be; see `is_parked`."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """The fields of all due entries: `job`, `uid` of the job, and the due instant `at`.

    `rank`: the priority of the job when the entry was written; 0 is the highest. `held`: the entry,
    or its predecessor, was due and had to wait for the queue of its pool, the turn of its job or
    the quota of its tenant. Entries that differ only in `held` are equal.

    Each type hashes only the fields that distinguish its entries: a hash over all fields takes
    three times as long, and sets and dicts of entries are used on every poll.
    """

    job: JobKey
    uid: str
    at: datetime
    rank: int = field(default=NORMAL_RANK, kw_only=True)
    held: bool = field(default=False, compare=False, kw_only=True)

    def bucket(self, now: datetime, shards: int) -> str:
        """The bucket for a write of this entry at *now*, with *shards* write shards."""
        return bucket_name(floor_minute(max(self.at, now)), self.job.shard(shards))

    def _key(self, tail: str) -> str:
        """``<epoch ms, 13 digits>#<entry id>``. The id is deterministic: writes are idempotent."""
        return f"{to_ms(self.at):013d}#{self.uid}#{tail}"


@dataclass(frozen=True, slots=True)
class FireEntry(_Entry):
    """The next occurrence of a job; exactly one per ACTIVE job with a schedule.

    `version`: the schedule version that created the entry. `occurrence`: the scheduled instant if
    jitter delays the run; else None. `ordinal`: for a job with `maxRuns`, the number of the
    occurrence in its version, from 1; else 1. `reading`: how the occurrence was computed, if it
    depends on the rules of a time zone. Entries that differ only in it are equal.
    """

    version: int
    occurrence: datetime | None = None
    ordinal: int = 1
    reading: ZoneReading | None = field(default=None, compare=False, kw_only=True)

    def __hash__(self) -> int:
        return hash((self.uid, self.at, self.version))

    @property
    def occurs_at(self) -> datetime:
        """The scheduled instant: `at` or, with jitter, an earlier instant."""
        return self.occurrence or self.at

    @property
    def run_key(self) -> RunKey:
        """The key of the run of this occurrence."""
        return RunKey(self.job, run_id(self.uid, self.occurs_at))

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        # Jitter can make two occurrences due at the same instant.
        of_occurrence = f"#{to_ms(self.occurrence)}" if self.occurrence else ""
        return self._key(f"F#{self.version}{of_occurrence}")


@dataclass(frozen=True, slots=True)
class DispatchEntry(_Entry):
    """The next dispatch of a run: a retry, the first dispatch of a run that a user requested or of
    a child, the end of a join, or a hand-over to repeat. It does not depend on a schedule version.

    `dispatch`: number of the dispatch. `exclusive`: the runs of the job share one message group.
    `trigger`: MANUAL or BACKFILL for the first dispatch of a requested run, else SCHEDULE.
    `counted`: an earlier dispatch, which led to no attempt, took the run from its tenant's quota.
    """

    run_id: str
    dispatch: int
    pool: str
    exclusive: bool = False
    trigger: Trigger = Trigger.SCHEDULE
    counted: bool = field(default=False, compare=False, kw_only=True)

    def __hash__(self) -> int:
        return hash((self.uid, self.at, self.run_id, self.dispatch))

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        return self._key(f"R#{self.run_id}#{self.dispatch}")


@dataclass(frozen=True, slots=True)
class ResumeEntry(_Entry):
    """The end of the pause of a job."""

    def __hash__(self) -> int:
        return hash((self.uid, self.at))

    @property
    def sort_key(self) -> str:
        """The sort key in the table."""
        return self._key("P")


@dataclass(frozen=True, slots=True)
class BackfillEntry(_Entry):
    """The progress of a backfill. `request`: id of the backfill. `ordinal`: number of its next
    occurrence, from 1.
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
"""A timed action."""


class Slot(NamedTuple):
    """The table key of a stored entry. A tuple, because slots are hashed 30 times per run."""

    bucket: str
    sort_key: str

    @property
    def minute(self) -> datetime:
        """The bucket's minute."""
        return _minute_of(self.bucket)


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry read from the table."""

    slot: Slot
    entry: DueEntry

    def is_parked(self, now: datetime) -> bool:
        """Whether the entry waits: it was due before the minute of its bucket, which is in the
        future.
        """
        minute = self.slot.minute
        return minute > now and self.entry.at < minute


@dataclass(frozen=True, slots=True)
class BrokenEntry:
    """An item of the due table that cannot be decoded. `raw`: the item in the format of its store.

    `at`, `job`: the parts that could be decoded, sufficient to rebuild the chain of the job; else
    None. `foreign`: the item may be of a type that a newer version of this code introduced.
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
    delay_by: timedelta = timedelta(),
    ordinal: int = 1,
    rank: int = NORMAL_RANK,
    reading: ZoneReading | None = None,
) -> FireEntry:
    """The entry for the occurrence at *at*, delayed by *delay_by*."""
    at = cut(at)
    occurrence = at if delay_by else None
    return FireEntry(
        job, uid, at + delay_by, version, occurrence, ordinal, rank=rank, reading=reading
    )


@lru_cache(maxsize=4096)
def _minute_of(bucket: str) -> datetime:
    minute, _, _ = bucket.partition("#")
    return datetime.strptime(minute, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)


@lru_cache(maxsize=4096)
def bucket_name(minute: datetime, shard: int) -> str:
    """``2026-05-24T10:00Z#007``."""
    return f"{minute.astimezone(UTC):%Y-%m-%dT%H:%MZ}#{shard:03d}"
