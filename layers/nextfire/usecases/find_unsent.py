"""Finds due entries of a job that are not sent yet, before the job forgets their schedule."""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.domain.due import PARKED_AT_MOST, FireEntry, StoredEntry
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import MINUTE, MOMENT, floor_minute
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore

MAX_BACKLOG_AGE = timedelta(hours=1)
"""If a cursor is further behind, the table is not searched: that would take too many reads."""
_AHEAD = PARKED_AT_MOST + MINUTE
_READ_AT_MOST = 10_000


class FindUnsent:
    """Looks for a job's chain in the due table. The cursors alone are not enough: entries that wait
    for room or for their turn are parked ahead of them.

    A chain is always in the table until it has ended: a successor is stored before its entry is
    deleted. It moves to later buckets and later keys, so a read in that order finds it. One
    exception: the successor of a parked entry may be in the present bucket, which is therefore read
    again at the end.
    """

    def __init__(self, due: DueStore, control: ControlStore, *, read_shards: int) -> None:
        self._due = due
        self._control = control
        self._read_shards = read_shards

    def of(self, job: JobKey, uid: str, now: datetime) -> list[FireEntry] | None:
        """The FIRE entries of the creation *uid* of *job* that were due by *now* and are in the
        table; None if that is unknown: a watcher is far behind, or a cursor is lost.

        Raises:
            UnavailableError: A store did not answer.
        """
        # With a different number of write shards, the entry was written to a different shard.
        shards = {job.shard(shards) for shards in range(1, self._read_shards + 1)}
        cursors = self._control.cursors(shards)
        minute = min(cursors.values(), default=now)
        if len(cursors) < len(shards) or minute < now - MAX_BACKLOG_AGE:
            return None
        found: list[FireEntry] = []
        read = 0
        ahead = (floor_minute(now) + _AHEAD - minute) // MINUTE + 1
        minutes = [minute + n * MINUTE for n in range(ahead)]
        for minute in [*minutes, *(m for m in minutes if m <= floor_minute(now) + MINUTE)]:
            for shard in sorted(s for s in shards if cursors[s] <= minute):
                for stored in self._due.read(minute, shard, before=now + MOMENT, consistent=True):
                    read += 1
                    if read > _READ_AT_MOST:
                        return None
                    entry = stored.entry if isinstance(stored, StoredEntry) else None
                    if isinstance(entry, FireEntry) and entry.uid == uid:
                        found.append(entry)
        return found
