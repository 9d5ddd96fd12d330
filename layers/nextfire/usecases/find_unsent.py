"""Finds due entries of a job that are not sent yet, before the job forgets their schedule."""

from __future__ import annotations

from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial

from nextfire.dataclass import dataclass
from nextfire.domain.due import PARKED_AT_MOST, FireEntry, StoredEntry
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import MINUTE, MOMENT, floor_minute
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore

MAX_BACKLOG_AGE = timedelta(hours=1)
"""If a cursor is further behind, the table is not searched: that would take too many reads."""
_AHEAD = PARKED_AT_MOST + MINUTE
_READ_AT_MOST = 10_000


@dataclass(frozen=True, slots=True)
class FindUnsent:
    """Looks for a job's chain in the due table. The cursors alone are not enough: entries that wait
    for room or for their turn are parked ahead of them.

    A chain is always in the table until it has ended: a successor is stored before its entry is
    deleted. It moves to later buckets and later keys, so a read in that order finds it. One
    exception: the successor of a parked entry may be in the present bucket, which is therefore read
    again at the end. `executor`: reads the shards of a minute concurrently. None: one after the
    other. Not the one in which `of` is called, which would wait for itself.
    """

    due: DueStore
    control: ControlStore
    read_shards: int
    executor: Executor | None = None

    def of(self, job: JobKey, uid: str, now: datetime) -> list[FireEntry] | None:
        """The FIRE entries of the creation *uid* of *job* that were due by *now* and are in the
        table; None if that is unknown: a watcher is far behind, or a cursor is lost.

        Raises:
            UnavailableError: A store did not answer.
        """
        # With a different number of write shards, the entry was written to a different shard.
        shards = {job.shard(shards) for shards in range(1, self.read_shards + 1)}
        cursors = self.control.cursors(shards)
        minute = min(cursors.values(), default=now)
        if len(cursors) < len(shards) or minute < now - MAX_BACKLOG_AGE:
            return None
        found: list[FireEntry] = []
        left = _READ_AT_MOST
        ahead = (floor_minute(now) + _AHEAD - minute) // MINUTE + 1
        minutes = [minute + n * MINUTE for n in range(ahead)]
        for minute in [*minutes, *(m for m in minutes if m <= floor_minute(now) + MINUTE)]:
            known = sorted(s for s in shards if cursors[s] <= minute)
            each = self.executor.map if self.executor and len(known) > 1 else map
            for number, entries in each(partial(self._read, minute, uid, now, left), known):
                left -= number
                found += entries
            if left < 0:
                return None
        return found

    def _read(
        self, minute: datetime, uid: str, now: datetime, most: int, shard: int
    ) -> tuple[int, list[FireEntry]]:
        """The number of entries in a bucket, at most *most* + 1, and those of *uid* among them."""
        number, found = 0, []
        for stored in self.due.read(minute, shard, before=now + MOMENT, consistent=True):
            number += 1
            if number > most:
                break
            entry = stored.entry if isinstance(stored, StoredEntry) else None
            if isinstance(entry, FireEntry) and entry.uid == uid:
                found.append(entry)
        return number, found
