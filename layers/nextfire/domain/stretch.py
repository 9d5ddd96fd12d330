"""Long ranges of occurrences, counted without enumerating them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile

from nextfire.dataclass import dataclass
from nextfire.domain.cron import read_cron
from nextfire.domain.excluded import excluded
from nextfire.domain.instants import MOMENT
from nextfire.domain.recurrence import (
    bounds,
    cron_occurrences,
    expression_text,
    next_instant,
    occurrences,
)
from nextfire.domain.schedule import Dst, Occurrence, Schedule, ScheduleType
from nextfire.domain.schedule_text import parse_duration
from nextfire.domain.wall_clock import MAX_CLOCK_CHANGE
from nextfire.domain.zones import changes, offset, wall, zone

_ENUMERATED = 1_000  # up to this many occurrences, enumerating is faster than computing
_LAST_TWO_WITHIN = (
    timedelta(minutes=2),
    timedelta(hours=1),
    timedelta(days=2),
    timedelta(days=64),
    timedelta(days=50_000),
)
"""Increasing look-back periods to find the last two occurrences; the last one covers everything."""


def count_occurrences(schedule: Schedule, until: datetime, *, at_most: int) -> int:
    """The number of occurrences after `effective_from` up to *until*, at most *at_most*. Large
    counts are computed, as in `stretch`, because a page of jobs needs a count for each job.

    Raises:
        InvalidInputError: The schedule is invalid.
    """
    if at_most <= _ENUMERATED:
        first = islice(occurrences(schedule, schedule.effective_from), at_most)
        return sum(1 for _ in takewhile(lambda occurrence: occurrence.at <= until, first))
    begin = next_instant(schedule, schedule.effective_from)
    if begin is None or begin > until:
        return 0
    return min(stretch(schedule, begin, until, at_most=sys.maxsize).count, at_most)


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` consecutive occurrences, from `first` to `last`. `before_last`: the occurrence before
    `last`; None if there is only one.
    """

    first: datetime
    last: datetime
    count: int
    before_last: datetime | None = None


def stretch(schedule: Schedule, first: datetime, until: datetime, *, at_most: int) -> Stretch:
    """The occurrences from *first*, itself an occurrence, to *until*: at least one, at most
    *at_most* (≥ 1). INTERVAL and CRON compute the result without enumerating occurrences, except
    near clock changes or if there are more than *at_most*.

    Raises:
        InvalidInputError: The schedule is invalid.
    """
    if schedule.except_dates:
        return _around_dates(schedule, first, until, at_most)
    _, end = bounds(schedule.start_at, schedule.end_at, schedule.timezone)
    until = max(first, until if end is None else min(until, end))
    if schedule.type is ScheduleType.INTERVAL:
        period = parse_duration(expression_text(schedule), "schedule")
        count = min((until - first) // period + 1, at_most)
        last = first + (count - 1) * period
        return Stretch(first, last, count, last - period if count > 1 else None)
    if schedule.type is ScheduleType.CRON:
        # Cron has minute precision: jobs with the same expression share a cached result. In a zone
        # whose offset once had seconds, the minutes began half a minute later.
        until = max(first, until.replace(second=until.second // 30 * 30, microsecond=0))
        return _cron_stretch(
            expression_text(schedule), schedule.timezone, schedule.dst, first, until, at_most
        )
    return _counted(occurrences(schedule, first - MOMENT), first, until, at_most)


def _around_dates(schedule: Schedule, first: datetime, until: datetime, at_most: int) -> Stretch:
    """`stretch`, put together from the parts between the dates without occurrences."""
    found = Stretch(first, first, 1)
    whole = replace(schedule, except_dates=())
    without = excluded(schedule.except_dates, schedule.timezone)
    for begin, end in without.between(first + MOMENT, until):
        at = next_instant(whole, begin - MOMENT)
        if found.count < at_most and at is not None and at <= end:
            part = stretch(whole, at, end, at_most=at_most - found.count)
            before_last = part.before_last or found.last
            found = Stretch(first, part.last, found.count + part.count, before_last)
    return found


@lru_cache(maxsize=4096)
def _cron_stretch(
    text: str, timezone: str, dst: Dst, first: datetime, until: datetime, at_most: int
) -> Stretch:
    after = first - MOMENT
    schedule = Schedule(ScheduleType.CRON, text, timezone, after, dst=dst)
    count = max(_cron_count(schedule, after, until), 1)
    if count > at_most:
        return _counted(cron_occurrences(schedule, after), first, until, at_most)
    latest: deque[datetime] = deque()
    for near in _LAST_TWO_WITHIN:
        since = max(after, until - near)
        latest = deque((each.at for each in _up_to(schedule, since, until)), maxlen=2)
        if len(latest) > 1 or since == after:
            break
    return Stretch(first, max(latest, default=first), count, latest[0] if count > 1 else None)


def _cron_count(schedule: Schedule, after: datetime, until: datetime) -> int:
    """The number of occurrences of a CRON in (*after*, *until*]. Counts whole days by expression,
    and enumerates occurrences near clock changes.
    """
    cron, local = read_cron(expression_text(schedule)), zone(schedule.timezone)
    count, low = 0, after
    for change in [*changes(schedule.timezone, after - MAX_CLOCK_CHANGE, until), None]:
        quiet_until = until if change is None else min(max(change.at - MOMENT, low), until)
        if quiet_until > low:
            ahead = offset(low + MOMENT, local)
            count += cron.count(wall(low + MOMENT, ahead), wall(quiet_until, ahead))
        low = quiet_until
        if change is not None:
            # Skipped times fire at the change. Repeated times end after the length of the change.
            walked_until = max(min(change.at + abs(change.after - change.before), until), low)
            count += sum(1 for _ in _up_to(schedule, low, walked_until))
            low = walked_until
    return count


def _up_to(schedule: Schedule, after: datetime, until: datetime) -> Iterator[Occurrence]:
    """The occurrences of a CRON in (*after*, *until*]."""
    return takewhile(lambda each: each.at <= until, cron_occurrences(schedule, after))


def _counted(
    found: Iterator[Occurrence], first: datetime, until: datetime, at_most: int
) -> Stretch:
    count, last, before_last = 0, first, None
    for each in islice(found, at_most):
        if each.at > until:
            break
        count, last, before_last = count + 1, each.at, last if count else None
    return Stretch(first, last, max(count, 1), before_last)
