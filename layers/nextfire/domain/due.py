"""Due entries: the one timer of the system. Whatever must happen at an instant is one of these.

An entry lies in the bucket of the minute of max(its due instant, the time it is written), so
nothing is ever written where nobody reads any more; the true due instant is inside, at the head of
its sort key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from nextfire.domain.ids import JobKey
from nextfire.domain.instants import cut, floor_minute, to_ms
from nextfire.domain.run import Trigger


class DueKind(StrEnum):
    """FIRE: a job's next occurrence; exactly one per active job. RETRY: a run's next dispatch.
    RESUME: the end of a job's pause. BACKFILL: how far a job's backfill has come.
    """

    FIRE = "FIRE"
    RETRY = "RETRY"
    RESUME = "RESUME"
    BACKFILL = "BACKFILL"


NORMAL_RANK = 1
PARKED_AT_MOST = timedelta(minutes=64)
"""How far ahead the bucket of an entry may be that is due and has to wait; see `is_parked`."""


@dataclass(frozen=True, slots=True)
class DueEntry:
    """Something that must happen at `at`.

    FIRE has the `version` of the schedule that made it, the `occurrence` it stands for where jitter
    put it later, and, for a job with `maxRuns`, that occurrence's `ordinal` (from 1) since the
    version began. RETRY names the run, the pool and the number of the dispatch to make; it is never
    checked against a version. `rank` is the job's priority when the entry was made, 0 the highest;
    `exclusive`, of a RETRY, says that the job's runs share one message group; `trigger`, of the
    first dispatch of a run that was asked for, how that came to be. BACKFILL has the `request` that
    it goes on with, and as `ordinal` which of its occurrences is next. `held`: it is due, and had
    to wait for its pool's queue, its job's turn or its tenant's quota, or the one before it had; it
    is the same entry all the same.
    """

    kind: DueKind
    job: JobKey
    uid: str
    at: datetime
    version: int = 0
    occurrence: datetime | None = None
    ordinal: int = 1
    run_id: str = ""
    dispatch: int = 1
    pool: str = ""
    rank: int = NORMAL_RANK
    exclusive: bool = False
    trigger: Trigger = Trigger.SCHEDULE
    request: str = ""
    held: bool = field(default=False, compare=False)

    def __hash__(self) -> int:
        # What tells entries apart; over all fields it takes thrice as long, and is asked for often.
        return hash((self.uid, self.at, self.version, self.run_id, self.dispatch))

    @property
    def occurs_at(self) -> datetime:
        """The instant that the schedule names; `at` or, with jitter, before it."""
        return self.occurrence or self.at

    @property
    def sort_key(self) -> str:
        """``<epoch ms, 13 digits>#<entry id>``. The id is derived, so writing an entry twice is
        harmless.
        """
        if self.kind is DueKind.RETRY:
            tail = f"R#{self.run_id}#{self.dispatch}"
        elif self.kind is DueKind.RESUME:
            tail = "P"
        elif self.kind is DueKind.BACKFILL:
            tail = f"B#{self.request}#{self.ordinal}"
        else:
            tail = f"F#{self.version}"
            # Jitter may put two occurrences on one instant.
            tail += f"#{to_ms(self.occurrence)}" if self.occurrence else ""
        return f"{to_ms(self.at):013d}#{self.uid}#{tail}"

    def bucket(self, now: datetime, shards: int) -> str:
        """Where a writer at *now* puts this entry, with *shards* write shards."""
        return bucket_name(floor_minute(max(self.at, now)), self.job.shard(shards))


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a stored entry: its table key."""

    bucket: str
    sort_key: str

    @property
    def minute(self) -> datetime:
        """The bucket's minute."""
        return datetime.strptime(self.bucket.partition("#")[0], "%Y-%m-%dT%H:%MZ").replace(
            tzinfo=UTC
        )


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
) -> DueEntry:
    """The FIRE entry for the occurrence at *at*, due *put_off* later."""
    at = cut(at)
    return DueEntry(
        DueKind.FIRE,
        job,
        uid,
        at + put_off,
        version,
        occurrence=at if put_off else None,
        ordinal=ordinal,
        rank=rank,
    )


@lru_cache(maxsize=4096)
def bucket_name(minute: datetime, shard: int) -> str:
    """``2026-05-24T10:00Z#007``."""
    return f"{minute.astimezone(UTC):%Y-%m-%dT%H:%MZ}#{shard:03d}"
