"""The occurrences of a job's current schedule version: when they are due, which follows which."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile

from nextfire.dataclass import dataclass, replace
from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import FireEntry, fire
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import MOMENT
from nextfire.domain.jitter import jitter
from nextfire.domain.recurrence import next_instant, occurrences
from nextfire.domain.schedule import MAX_RUNS, UNTIMED, Schedule, ScheduleType
from nextfire.domain.schedule_text import parse_duration
from nextfire.domain.stretch import Stretch, count_occurrences, stretch
from nextfire.domain.wall_clock import first_at
from nextfire.domain.zones import ZoneReading, wall


class JobState(StrEnum):
    """Only ACTIVE jobs with a schedule have a FIRE entry. COMPLETED: no occurrence is left."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self in ENDED_STATES


ENDED_STATES = frozenset({JobState.COMPLETED, JobState.CANCELLED})

_ZONED = frozenset(ScheduleType) - UNTIMED - {ScheduleType.DELAY}
"""The types that can contain wall-clock times, in `schedule` or `startAt`."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Where an occurrence is since a release of the time zone rules. `to`: the entry of the same
    wall-clock time, or of the first one after it; `following`: the entry after that one. None: the
    schedule ends before it.
    """

    to: FireEntry | None
    following: FireEntry | None


class Occurrences:
    """Part of `Job`: reads its fields and computes occurrences and FIRE entries from them."""

    __slots__ = ()

    key: JobKey
    uid: str
    schedule_version: int
    effective_from: datetime
    state: JobState
    definition: JobDefinition
    counted_from: datetime | None
    skips: tuple[datetime, ...]

    @property
    def counted_since(self) -> datetime:
        return self.counted_from or self.effective_from

    @property
    def schedule(self) -> Schedule:
        return self.definition.schedule_from(self.counted_since)

    @property
    def is_zoned(self) -> bool:
        """Whether occurrences may depend on the rules of a time zone, which can change."""
        return self.definition.timezone != "UTC" and self.definition.type in _ZONED

    def next_after(self, after: datetime) -> datetime | None:
        """Return the next occurrence strictly after *after* and `effective_from`, in any state of
        the job.
        """
        return next_instant(self.schedule, max(after, self.effective_from))

    def first(self) -> FireEntry | None:
        """Return the due entry of this version's first occurrence, or None.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        return self.next_entry(self.effective_from)

    def next_entry(self, after: datetime) -> FireEntry | None:
        """Return the due entry of the first occurrence after *after*, in any state of the job; None
        after the last one, or the last one that `maxRuns` allows.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        at = self.next_after(after)
        return None if at is None else self.entry_of(at)

    def entry_of(self, occurrence: datetime) -> FireEntry | None:
        """Return the due entry of the occurrence at *occurrence*; None if `maxRuns` excludes it.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        ordinal = self.ordinal(occurrence)
        return self.fire_entry(occurrence, ordinal) if self.allows(ordinal) else None

    def fire_entry(self, occurrence: datetime, ordinal: int) -> FireEntry:
        """Return the due entry of the *ordinal*-th occurrence of this version, at *occurrence*."""
        width = self.definition.jitter_width
        return fire(
            self.key,
            self.uid,
            self.schedule_version,
            occurrence,
            delay_by=jitter(self.uid, occurrence, width) if width else width,
            ordinal=ordinal,
            rank=self.definition.priority.rank,
            reading=ZoneReading.of(occurrence, self.schedule.timezone) if self.is_zoned else None,
        )

    def moved(self, entry: FireEntry) -> Moved | None:
        """Return where the occurrence of *entry*, an entry of this version, is by the rules of this
        process; None if it is where it was, or must stay there.

        It stays if the entry was computed with the same or a newer release, or if the wall-clock
        time is not after the start of this version: then it would never run.
        """
        read, at = entry.reading, entry.occurs_at
        if read is None or not read.is_outdated or self.next_after(at - MOMENT) == at:
            return None
        same_time = self._by_these_rules(at, read)
        if same_time <= self.effective_from:
            return None
        to = self.next_after(same_time - MOMENT)
        if to is None:
            return Moved(None, None)
        return Moved(self.fire_entry(to, entry.ordinal), self.following(to, entry.ordinal))

    def next_to_run(self, after: datetime) -> datetime | None:
        """Return the first occurrence after *after* that is not skipped, or None.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        entry = self.next_entry(after)
        while entry is not None and entry.occurs_at in self.skips:
            entry = self.next_entry(entry.occurs_at)
        return None if entry is None else entry.occurs_at

    def successor(self, entry: FireEntry) -> FireEntry | None:
        """Return the due entry after *entry*, an entry of this version; None after the last. If a
        newer release of the time zone rules computed *entry*, what follows its wall-clock time by
        the rules of this process: no wall-clock time runs twice or is passed over.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        read, after = entry.reading, entry.occurs_at
        if read is not None and read.is_newer and self.next_after(after - MOMENT) != after:
            after = self._by_these_rules(after, read)
        return self.following(after, entry.ordinal)

    def _by_these_rules(self, at: datetime, read: ZoneReading) -> datetime:
        """Return the instant of the wall-clock time of an occurrence that was computed as *read*
        says; *at* itself if only its date keeps it from being an occurrence: it has not moved.
        """
        whole = replace(self.schedule, except_dates=())
        if next_instant(whole, at - MOMENT) == at:
            return at
        return first_at(wall(at, read.offset), self.schedule.timezone)

    def following(self, occurrence: datetime, ordinal: int) -> FireEntry | None:
        """Return the due entry after the *ordinal*-th occurrence; None after the last.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        most = self.definition.max_runs
        following = self.next_after(occurrence)
        if following is None or (most is not None and ordinal >= most):
            return None
        # Set only with `maxRuns`, to keep other entries small.
        return self.fire_entry(following, 1 if most is None else ordinal + 1)

    def stretch(self, entry: FireEntry, until: datetime) -> Stretch:
        """Return the occurrences from that of *entry* to *until*, within `maxRuns`; see
        `nextfire.domain.stretch`.
        """
        most = self.definition.max_runs
        left = MAX_RUNS**2 if most is None else max(most - entry.ordinal + 1, 1)
        return stretch(self.schedule, entry.occurs_at, until, at_most=left)

    def count_between(self, after: datetime, before: datetime, *, at_most: int) -> int:
        """Return the number of occurrences between *after* and *before*, both exclusive, within
        `maxRuns`; at most *at_most*.
        """
        left = self.left_after(after) if at_most else None
        at_most = at_most if left is None else min(at_most, left)
        found = islice(occurrences(self.schedule, max(after, self.effective_from)), at_most)
        return sum(1 for _ in takewhile(lambda occurrence: occurrence.at < before, found))

    def ordinal(self, occurrence: datetime) -> int:
        """Return the position of the occurrence in this version, from 1. Computed only with
        `maxRuns`, up to `maxRuns` + 1; else 1.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        most = self.definition.max_runs
        if most is None:
            return 1
        return count_occurrences(self.schedule, occurrence, at_most=most + 1)

    def allows(self, ordinal: int) -> bool:
        """Whether `maxRuns` allows the *ordinal*-th occurrence."""
        return self.definition.max_runs is None or ordinal <= self.definition.max_runs

    def left_after(self, after: datetime) -> int | None:
        """Return how many occurrences after *after* `maxRuns` allows; None: any number.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        most = self.definition.max_runs
        if most is None:
            return None
        first = self.next_after(after)
        return 0 if first is None else max(most - self.ordinal(first) + 1, 0)

    def last_allowed(self, until: datetime) -> datetime | None:
        """Return the last occurrence that `maxRuns` allows; None if it is after *until*, if there
        are fewer, or no limit.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        most = self.definition.max_runs
        if most is None or count_occurrences(self.schedule, until, at_most=most) < most:
            return None
        counted = islice(occurrences(self.schedule, self.counted_since), most - 1, None)
        return next((occurrence.at for occurrence in counted), None)

    def is_last(self, occurrence: datetime) -> bool:
        """Whether the occurrence at *occurrence* is the last one. False without a schedule.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        if self.definition.type in UNTIMED:
            return False
        most = self.definition.max_runs
        return self.next_after(occurrence) is None or (
            most is not None and self.ordinal(occurrence) >= most
        )

    def past_schedule(self, first: datetime) -> Schedule:
        """Return the current schedule extended back to *first*. An INTERVAL keeps its phase; a
        DELAY keeps its start.

        Raises:
            InvalidInputError: The schedule is invalid.
        """
        counted_from, when = self.counted_since, self.definition
        if when.type is ScheduleType.DELAY or first > counted_from:
            return self.schedule
        if when.type is ScheduleType.INTERVAL and when.start_at is None:
            period = parse_duration(str(when.schedule), "schedule")
            return when.schedule_from(
                counted_from - ((counted_from - first) // period + 1) * period
            )
        return when.schedule_from(first - timedelta(milliseconds=1))


def owned(entry: FireEntry | None, until: datetime | None) -> FireEntry | None:
    """*entry*, or None if its occurrence is after *until*, the end of its version."""
    ended = entry is not None and until is not None and entry.occurs_at > until
    return None if ended else entry
