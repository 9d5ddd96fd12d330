"""Reads due entries from the buckets of each shard, from its cursor on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import islice
from operator import attrgetter

from nextfire.dataclass import dataclass
from nextfire.domain.due import BrokenEntry, Slot, StoredEntry, bucket_name
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MINUTE, MOMENT, floor_minute
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.usecases.dispatch.parked import ParkedEntries

LOOK_AHEAD = timedelta(seconds=2)
CLOSED_AFTER = timedelta(seconds=30)
"""How long after the end of a bucket's minute writers may still write into it."""
ENDING_EVERY = timedelta(seconds=2)
"""How often a bucket is read between the end of its minute and its close."""
STRAGGLER_BUCKETS = 10
READ_AT_MOST = 2_000
"""Entries read per shard and poll; the rest waits in the table. The earliest are read first."""
READ_AT_LEAST = 50
"""Minimum of entries read, however full memory is: entries that just became due must be seen."""
BUCKETS_AT_MOST = 60
"""Buckets read per shard and poll. After an outage of days the cursor takes several polls to reach
the present; a single long poll would outlive the lease, and so would the next holder's.
"""
_WRITTEN_LATE = 2 * LOOK_AHEAD  # how long after it is due an entry may still be written
_UNSEEDED = timedelta(minutes=10)  # a shard without a cursor was never written to before that
_READ_FOR = timedelta(milliseconds=300)
"""Maximum wait for the shards in one poll: no other work begins meanwhile."""

Found = list[StoredEntry | BrokenEntry]
Hold = Callable[[Found], None]


class _When(Enum):
    """Which buckets of a shard: closed ones of the past, present ones, or future ones with parked
    entries.
    """

    PAST = auto()
    PRESENT = auto()
    PARKED = auto()


@dataclass(frozen=True, slots=True)
class _Part:
    """Buckets of a shard that are read together."""

    shard: int
    when: _When


class BucketReader:
    """Reads the buckets of *shards*, from their cursors to `LOOK_AHEAD` from now.

    Args:
        due: The entries.
        control: The cursors.
        clock: The time.
        executor: Reads the shards concurrently.
        shards: The shards of the group.
        epoch: The epoch of the lease. It never moves back a cursor that a later holder has moved.
        room: How many more entries can be held, and how many from closed buckets, which are late.
            All shards together read about that many.
        parked: Finds entries parked in future buckets; each poll reads some of them.
    """

    def __init__(
        self,
        due: DueStore,
        control: ControlStore,
        clock: Clock,
        executor: Executor,
        *,
        shards: Collection[int],
        epoch: int,
        room: Callable[[], tuple[int, int]],
        parked: ParkedEntries,
    ) -> None:
        self._due = due
        self._control = control
        self._clock = clock
        self._executor = executor
        self._shards = list(shards)
        self._epoch = epoch
        self._room = room
        self._parked = parked
        self._most = self._most_late = READ_AT_MOST
        self._full = False
        self._cursors: dict[int, datetime] = {}
        self._reading: dict[_Part, Future[tuple[Found, datetime]]] = {}
        self._began: dict[_Part, datetime] = {}
        self._read_until: dict[str, datetime] = {}
        self._reached: dict[str, Slot] = {}
        self._ending_read_at: dict[int, datetime] = {}
        self._stragglers_at: datetime | None = None
        self._reads = {
            _When.PAST: self._read_past,
            _When.PRESENT: self._read_present,
            _When.PARKED: self._read_parked,
        }

    def reads_since(self, now: datetime) -> datetime:
        """When the oldest unanswered read began; *now* if no read is unanswered."""
        return min((self._began[part] for part in self._reading), default=now)

    def behind(self, now: datetime) -> timedelta:
        """How far the oldest cursor is behind *now*; zero before the first read."""
        return now - min(self._cursors.values(), default=now)

    def read(self, now: datetime, hold: Hold, notes: list[str]) -> None:
        """Read every bucket from the cursors on; move the cursors past closed, empty buckets.

        A slow shard does not delay the others: `take_answers` and later polls take its answer once
        it has arrived.

        Raises:
            UnavailableError: A read failed. Entries that were read are held, also of other shards.
        """
        self._seed(now)
        room, room_for_late = self._room()
        self._full = not room
        self._most, self._most_late = self._share(room), self._share(room_for_late)
        trouble = self._read_shards(now, hold, notes)
        if self._stragglers_at is None or now - self._stragglers_at >= MINUTE:
            self._stragglers_at = now
            trouble = self._read_stragglers(hold, notes) or trouble
        if trouble is not None:
            raise trouble

    def take_answers(self, hold: Hold) -> None:
        """Hold what unanswered reads have returned meanwhile. The next poll reports failed ones."""
        for part, reading in [*self._reading.items()]:
            if reading.done() and reading.exception() is None:
                found, cursor = self._reading.pop(part).result()
                hold(found)
                with suppress(UnavailableError):  # a later read moves it
                    self._move_cursor(part.shard, cursor)

    def _share(self, room: int) -> int:
        """The entries to read of one shard."""
        return max(READ_AT_LEAST, min(READ_AT_MOST, room // max(len(self._shards), 1)))

    def _seed(self, now: datetime) -> None:
        if len(self._cursors) == len(self._shards):
            return
        self._control.seed_cursors(max(self._shards) + 1, floor_minute(now) - _UNSEEDED)
        cursors = self._control.cursors(self._shards)
        if len(cursors) < len(self._shards):
            raise UnavailableError("A cursor disappeared right after it was set. Try again.")
        self._cursors.update(cursors)

    def _read_shards(self, now: datetime, hold: Hold, notes: list[str]) -> UnavailableError | None:
        """Hold what the shards return in time. Returns the error of a shard that failed, if any."""
        slow = set(self._reading)
        for part in [*self._parts(now)]:
            if part not in slow:
                read = self._reads[part.when]
                self._reading[part] = self._executor.submit(read, part.shard, now)
                self._began[part] = now
        trouble: UnavailableError | None = None
        # The past is held first: in memory, fresh entries have room that others have not.
        for part in sorted(self._reading, key=lambda part: (part.shard, part.when.value)):
            reading = self._reading[part]
            left = timedelta() if part in slow else now + _READ_FOR - self._clock.now()
            del self._reading[part]
            try:
                found, cursor = reading.result(max(left, timedelta()).total_seconds())
                hold(found)
                self._move_cursor(part.shard, cursor)
            except TimeoutError:
                self._reading[part] = reading
                if part not in slow and part.when is _When.PRESENT:
                    notes.append(f"shard {part.shard} does not answer")
            except UnavailableError as error:
                trouble = error
        return trouble

    def _parts(self, now: datetime) -> Iterator[_Part]:
        """The parts to read. Past and parked buckets are separate parts: they may take many reads,
        and the present must not wait for them, or for the capacity of the table that they use.
        """
        present = [_Part(shard, _When.PRESENT) for shard in self._shards]
        yield from present
        for shard in [part.shard for part in present if part not in self._reading]:
            if self._cursors[shard] < _first_of_present(now):
                yield _Part(shard, _When.PAST)
            if not self._full:
                yield _Part(shard, _When.PARKED)

    def _move_cursor(self, shard: int, minute: datetime) -> None:
        moved = minute > self._cursors[shard]
        if moved and self._control.move_cursor(shard, minute, self._epoch):
            self._cursors[shard] = minute

    def _read_stragglers(self, hold: Hold, notes: list[str]) -> UnavailableError | None:
        """Hold what the shards return in time; a slow shard is read again a minute later."""
        until = self._clock.now() + _READ_FOR
        slow = {part.shard for part in self._reading}
        answering = [shard for shard in self._shards if shard not in slow]
        trouble: UnavailableError | None = None
        for late in [self._executor.submit(self._stragglers, shard) for shard in answering]:
            try:
                left = max(until - self._clock.now(), timedelta())
                hold(late.result(left.total_seconds()))
            except TimeoutError:
                notes.append("a shard's last minutes are not read again: no answer")
            except UnavailableError as error:
                trouble = error
        return trouble

    def _stragglers(self, shard: int) -> Found:
        """Entries that were written late, into buckets that the cursor has passed."""
        found: Found = []
        for back in range(1, STRAGGLER_BUCKETS + 1):
            minute = self._cursors[shard] - back * MINUTE
            late = self._due.read(minute, shard, before=None, consistent=False)
            found += islice(late, READ_AT_MOST)
        return found

    def _read_past(self, shard: int, now: datetime) -> tuple[Found, datetime]:
        """Entries left in closed buckets of *shard*, and how far its cursor may move.

        After a failed read the next poll continues: reading from the start again might use up what
        a throttled table permits, each time.

        Raises:
            UnavailableError: The first read failed.
        """
        found: Found = []
        cursor = minute = self._cursors[shard]
        present = _first_of_present(now)
        for _ in range(BUCKETS_AT_MOST):
            if minute >= present or len(found) >= self._most_late:
                break
            try:
                found += self._read_closed(minute, shard)
            except UnavailableError:
                if minute == self._cursors[shard]:
                    raise
                break
            minute += MINUTE
            if not found:
                cursor = minute
        return found, cursor

    def _read_present(self, shard: int, now: datetime) -> tuple[Found, datetime]:
        """Due entries in the buckets of *shard* that writers use now or used until recently; and
        how far its cursor may move.
        """
        found: Found = []
        cursor, first = self._cursors[shard], _first_of_present(now)
        minute = max(cursor, first) if cursor <= now else first  # moved by a clock that was ahead
        if now >= minute + MINUTE + CLOSED_AFTER:
            found += self._read_closed(minute, shard)
            if not found and cursor == minute:
                cursor += MINUTE
            minute += MINUTE
        elif now >= minute + MINUTE + LOOK_AHEAD:
            # Only late writes still arrive there, so it is read less often.
            if now < self._ending_read_at.get(shard, now - ENDING_EVERY) + ENDING_EVERY:
                minute += MINUTE
            else:
                self._ending_read_at[shard] = now
        while minute <= floor_minute(now + LOOK_AHEAD):
            found += self._read_open(minute, shard, now)
            minute += MINUTE
        return found, cursor

    def _read_parked(self, shard: int, now: datetime) -> tuple[Found, datetime]:
        return self._parked.read(shard, now), self._cursors[shard]

    def _read_closed(self, minute: datetime, shard: int) -> Found:
        whole = self._due.read(minute, shard, before=None, consistent=True, page=self._most_late)
        return [*islice(whole, self._most_late)]

    def _read_open(self, minute: datetime, shard: int, now: datetime) -> Found:
        """Due entries of a bucket that writers still use.

        A backlog sorts before newer entries and could hide them forever. So the entries that became
        due since the last poll, however long ago it was, are read as well; and of the entries in
        between each poll reads one part, from where the last one stopped.
        """
        until, most = now + LOOK_AHEAD, self._most
        due = self._due.read(minute, shard, before=until, consistent=False, page=most)
        found = [*islice(due, most)]
        bucket = bucket_name(minute, shard)
        if len(found) < most:
            self._reached.pop(bucket, None)
            self._read_until.pop(bucket, None)
            return found
        known_until = self._read_until.get(bucket, minute) - _WRITTEN_LATE
        self._read_until[bucket] = until
        end = found[-1].slot
        found += self._read_newly_due(minute, shard, now, found[-1], known_until)
        return found if self._full else found + self._read_between(minute, shard, until, end)

    def _read_newly_due(
        self,
        minute: datetime,
        shard: int,
        now: datetime,
        last: StoredEntry | BrokenEntry,
        known_until: datetime,
    ) -> Found:
        """Entries behind *last* that became due since the last poll, or will until the next one."""
        until, found = now + 2 * LOOK_AHEAD, []  # the next poll may be slow
        # Entries that were moved into this bucket were due before its minute. Entries due at the
        # same instant as the last one, however many, are left to the parts in between.
        at = last.entry.at if isinstance(last, StoredEntry) else minute
        for since in (max(minute, at + MOMENT, min(now, known_until)), now):
            if since >= until:
                continue
            due = self._due.read(
                minute, shard, since=since, before=until, consistent=False, page=self._most
            )
            part = [*islice(due, self._most)]
            found += part
            if len(part) < self._most:
                break
        return found

    def _read_between(self, minute: datetime, shard: int, until: datetime, end: Slot) -> Found:
        """The next part of the entries behind *end*."""
        bucket, most = bucket_name(minute, shard), 2 * self._most
        reached = max(self._reached.get(bucket, end), end, key=attrgetter("sort_key"))
        behind = self._due.read(
            minute, shard, after=reached, before=until, consistent=False, page=most
        )
        between = [*islice(behind, most)]
        if len(between) == most:
            self._reached[bucket] = between[-1].slot
        else:
            self._reached.pop(bucket, None)
        return between


def _first_of_present(now: datetime) -> datetime:
    """The minute before the current one. Buckets of earlier minutes are closed."""
    return floor_minute(now) - MINUTE
