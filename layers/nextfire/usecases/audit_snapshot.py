"""Reads what the due table and the queues hold of jobs in which an audit suspects a loss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, field
from nextfire.domain.audit_repairs import ChainEntry, next_entry
from nextfire.domain.due import (
    PARKED_AT_MOST,
    BrokenEntry,
    DispatchEntry,
    DueEntry,
    Slot,
    StoredEntry,
    bucket_name,
)
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.job import Job
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.domain.target import TargetKind
from nextfire.usecases.dispatch.reader import STRAGGLER_BUCKETS

BEHIND = timedelta(minutes=5)
"""A shard whose cursor is further behind is not judged: its watcher has yet to get there."""
AHEAD = 2 * MINUTE
"""How far ahead buckets are read whole; later buckets only for parked entries."""
_READ_FOR = timedelta(seconds=30)
"""Maximum duration of a reading. An invocation reserves a minute for its last page, which may need
two; the second one has only shards whose first was quick.
"""
_QUICK = timedelta(seconds=5)
_REST = 10
"""A shard whose reading takes longer than `_QUICK` is then not read for this many times as long:
millions of runs may wait in it, and each page with suspects would read them all."""


@dataclass(slots=True)
class DueSnapshot:
    """What the due table holds of some jobs. `following`: the entry that each job would have if
    everything due had been sent; `existing`: those of them that exist; `entries`: by uid, the
    entries that are due or will be soon; `backlogs`: what the pools' queues held after that.
    `behind`: those of the `shards` that were not read to the end: their watcher is behind, or it
    takes too long.
    """

    shards: int
    following: dict[JobKey, ChainEntry] = field(default_factory=dict)
    existing: set[DueEntry] = field(default_factory=set)
    entries: dict[str, list[DueEntry]] = field(default_factory=dict)
    broken: set[JobKey] = field(default_factory=set)
    behind: set[int] = field(default_factory=set)
    backlogs: dict[str, int] = field(default_factory=dict)

    def may_hold(self, job: Job) -> bool:
        """Whether the due table has, or may have, an entry of *job* that is due or waits."""
        is_behind = job.key.shard(self.shards) in self.behind
        return is_behind or job.key in self.broken or bool(self.entries.get(job.uid))

    def is_empty(self, job: Job, since: datetime, pool: str | None = None) -> bool:
        """Whether no queue can hold a run of *job*, including pools that it may have had before;
        *pool*: the pool of the run, if known.
        """
        pools = {*self.backlogs} if job.changed_after(since) else {job.definition.target.pool, pool}
        return not any(self.backlogs.get(each, 0) for each in pools if each)


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """Reads snapshots. `write_shards` and `read_shards`: of the due table."""

    due: DueStore
    queue: RunQueue
    control: ControlStore
    clock: Clock
    executor: Executor
    pools: Collection[str]
    write_shards: int
    read_shards: int
    _rests_until: dict[int, datetime] = field(default_factory=dict)

    def rests(self, job: Job, now: datetime) -> bool:
        """Whether the shard of *job* is not read at *now*, because that took long a moment ago."""
        return self._rests(job.key.shard(self.write_shards), now)

    def _rests(self, shard: int, now: datetime) -> bool:
        return shard in self._rests_until and now < self._rests_until[shard]

    def read(self, jobs: list[Job], now: datetime) -> DueSnapshot:
        """Return what the due table, and after it the queues, hold of *jobs*."""
        shards = {job.key.shard(self.write_shards) for job in jobs}
        cursors = self.control.cursors(shards)
        table = DueSnapshot(self.write_shards)
        late = {s for s in shards if s not in cursors or now - cursors[s] > BEHIND}
        table.behind = late | {shard for shard in shards if self._rests(shard, now)}
        until = self.clock.now() + _READ_FOR
        uids = {job.uid for job in jobs}
        self._for_each(
            shards - table.behind,
            lambda shard: self._read_shard(shard, cursors[shard], now, until, uids, table),
        )
        # Entries that came due during the read have moved on to successors that were not read.
        later = self.clock.now()
        following = {job.key: next_entry(job, later) for job in jobs}
        table.following = {key: entry for key, entry in following.items() if entry}
        slots = {
            slot: entry for entry in table.following.values() for slot in self._slots(entry, later)
        }
        table.existing = {slots[slot] for slot in self.due.occupied(slots)}
        table.backlogs = {pool: self._backlog(pool) for pool in self.pools}
        # Runs that wait for an endpoint or `maxParallel` go from the queue back into the due table.
        waiting = {
            job.key.shard(self.write_shards)
            for job in jobs
            if job.definition.target.kind is not TargetKind.SCRIPT or job.definition.max_parallel
        }
        self._for_each(
            waiting - table.behind,
            lambda shard: self._read_held(shard, later, until, uids, table),
        )
        return table

    def _for_each(self, shards: Collection[int], do: Callable[[int], None]) -> None:
        for each in [self.executor.submit(do, shard) for shard in shards]:
            each.result()

    def _backlog(self, pool: str) -> int:
        try:
            return self.queue.backlog(pool)
        except UnavailableError:
            raise
        except Exception:  # noqa: BLE001 — one pool's queue must not stop the audit
            return 1  # unknown: nothing in it is treated as lost

    def _read_held(
        self, shard: int, now: datetime, until: datetime, uids: set[str], table: DueSnapshot
    ) -> None:
        """Read the dispatches in *shard* that are not due yet."""
        minutes = range(PARKED_AT_MOST // MINUTE + 1)
        buckets = [(floor_minute(now) + each * MINUTE, None) for each in minutes]
        for stored in self._entries(shard, buckets, until, table):
            entry = stored.entry if isinstance(stored, StoredEntry) else None
            if isinstance(entry, DispatchEntry) and entry.uid in uids:
                table.entries.setdefault(entry.uid, []).append(entry)

    def _read_shard(
        self,
        shard: int,
        cursor: datetime,
        now: datetime,
        until: datetime,
        uids: set[str],
        table: DueSnapshot,
    ) -> None:
        """Read, in order of time, everything in *shard* that may be due and is not sent."""
        first, whole_until = cursor - STRAGGLER_BUCKETS * MINUTE, floor_minute(now) + AHEAD
        ahead = (floor_minute(now) + PARKED_AT_MOST + MINUTE - first) // MINUTE + 1
        minutes = [first + n * MINUTE for n in range(ahead)]
        # The successor of a parked entry may be in the present bucket, which is read again.
        again = [m for m in minutes if floor_minute(now) <= m <= whole_until]
        buckets = [(m, None if m <= whole_until else m) for m in [*minutes, *again]]
        for stored in self._entries(shard, buckets, until, table):
            if isinstance(stored, BrokenEntry):
                # Its watcher quarantines it when it is due, and repairs the chain.
                table.broken.update({stored.job} if stored.job else ())
            elif stored.entry.uid in uids:
                table.entries.setdefault(stored.entry.uid, []).append(stored.entry)

    def _entries(
        self,
        shard: int,
        buckets: Iterable[tuple[datetime, datetime | None]],
        until: datetime,
        table: DueSnapshot,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        """The entries in *buckets*, each a minute and the instant before which it is read. At
        *until* the reading ends, and the shard is not judged.
        """
        began_at = self.clock.now()
        for minute, before in buckets:
            if self.clock.now() > until:
                table.behind.add(shard)
                break
            yield from self.due.read(minute, shard, before=before, consistent=True)
        took = self.clock.now() - began_at
        if took > _QUICK:
            self._rests_until[shard] = self.clock.now() + _REST * took

    def slot(self, entry: DueEntry, now: datetime) -> Slot:
        """Return the slot where *entry* is written at *now*."""
        return Slot(entry.bucket(now, self.write_shards), entry.sort_key)

    def _slots(self, entry: DueEntry, now: datetime) -> set[Slot]:
        """The slots where *entry* may be: with fewer write shards its shard was different."""
        minute = floor_minute(max(entry.at, now))
        shards = {entry.job.shard(shards) for shards in range(1, self.read_shards + 1)}
        return {Slot(bucket_name(minute, shard), entry.sort_key) for shard in shards}
