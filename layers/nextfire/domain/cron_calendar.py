"""Cron expressions as sets of wall-clock minutes. Independent of instants and time zones.

croniter provides the calendar. It only computes days, from unambiguous expressions, which `cron`
makes from what users write. It is imported when a day is first searched: few requests do, and its
import is a twentieth of the API's cold start. The watcher imports it when it starts.
"""

from __future__ import annotations

import copy
import math
from array import array
from bisect import bisect_left
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from nextfire.dataclass import dataclass

if TYPE_CHECKING:
    from croniter import croniter

_DAY = timedelta(days=1)
_LAST_YEAR = 2100


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed cron expression.

    `times`: minutes of the day, ascending; an array, because thousands of expressions are kept, and
    a tuple of all minutes takes 50 KB. `days`: croniter expressions; a day matches if it
    matches one of them. `elapsed`: the hour field starts with ``*``, so the schedule follows
    elapsed time across clock changes.
    """

    times: array[int]
    days: tuple[str, ...]
    elapsed: bool

    def next_wall(self, at: datetime) -> datetime | None:
        """The first matching minute at or after *at*, both naive; None if none is before 2100."""
        whole = at.replace(second=0, microsecond=0)
        if whole < at:
            whole += timedelta(minutes=1)
        day = self._day_from(whole.date())
        if day == whole.date():
            index = bisect_left(self.times, whole.hour * 60 + whole.minute)
            if index < len(self.times):
                return _at(day, self.times[index])
            day = self._day_from(day + _DAY)
        return None if day is None else _at(day, self.times[0])

    def count(self, low: datetime, high: datetime) -> int:
        """Count the matching minutes from *low* to *high*, both included and naive. The cost grows
        with the number of days, not minutes.
        """
        total, day = 0, self._day_from(low.date())
        while day is not None and day <= high.date():
            begin = bisect_left(self.times, _minutes(low)) if day == low.date() else 0
            end = len(self.times)
            if day == high.date():
                end = bisect_left(self.times, math.floor(_minutes(high)) + 1)
            total += max(end - begin, 0)
            day = self._day_from(day + _DAY)
        return total

    def _day_from(self, day: date) -> date | None:
        if day.year >= _LAST_YEAR:
            return None
        found = [found for days in self.days if (found := _matching_day(days, day)) is not None]
        return min(found, default=None)


def _minutes(at: datetime) -> float:
    """Minutes from midnight to *at*."""
    return (at - datetime.combine(at.date(), time())) / timedelta(minutes=1)


def _at(day: date, minute: int) -> datetime:
    return datetime.combine(day, time(minute // 60, minute % 60))


@lru_cache(maxsize=65536)
def _matching_day(days: str, since: date) -> date | None:
    if days == "* * *":
        return since
    from croniter import CroniterBadDateError  # noqa: PLC0415

    walk = copy.copy(_calendar(days))  # the original is shared between threads
    walk.set_current(datetime.combine(since, time()) - timedelta(minutes=1))
    try:
        found: datetime = walk.get_next(datetime)
    except CroniterBadDateError:
        # croniter searches 50 years, and calendars repeat after 28: no day ever matches.
        return None
    return found.date() if found.year < _LAST_YEAR else None


@lru_cache(maxsize=4096)
def _calendar(days: str) -> croniter:
    from croniter import croniter  # noqa: PLC0415

    return croniter(f"0 0 {days}", datetime(1970, 1, 1), day_or=False)  # noqa: DTZ001 — wall clock
