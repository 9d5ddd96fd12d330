"""The local dates on which a schedule has no occurrences."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import chain

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import MOMENT
from nextfire.domain.zones import FIRST, HORIZON, changes, offset, zone

_FIELD = "exceptDates"
_DAY = timedelta(days=1)
_NEAR = timedelta(days=2)
"""An instant on a local date is within this time of the beginning of that date in UTC."""


class Excluded:
    """The instants on *dates*, as ``YYYY-MM-DD``, in the time zone *timezone*.

    Raises:
        InvalidInputError: A date does not exist, or the IANA database does not contain the zone.
    """

    def __init__(self, dates: tuple[str, ...], timezone: str) -> None:
        read = {_read(text) for text in dates}
        spans = sorted(chain.from_iterable(_spans(each, timezone) for each in read))
        self._begins: list[datetime] = []
        self._ends: list[datetime] = []
        for begin, end in spans:
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def end_at(self, at: datetime) -> datetime | None:
        """The first instant after *at* that is not excluded; None if *at* is not excluded."""
        index = bisect_right(self._begins, at) - 1
        return self._ends[index] if index >= 0 and at < self._ends[index] else None

    def between(self, first: datetime, last: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The parts of *first* to *last* that are not excluded, ascending, with both ends."""
        for index in range(bisect_right(self._ends, first), len(self._begins)):
            if self._begins[index] > last:
                break
            if first < self._begins[index]:
                yield first, self._begins[index] - MOMENT
            first = self._ends[index]
        if first <= last:
            yield first, last


@lru_cache(maxsize=128)  # 100 dates take 20 KB
def excluded(dates: tuple[str, ...], timezone: str) -> Excluded:
    """As `Excluded`; cached, because the jobs of a tenant have few different lists of dates."""
    return Excluded(dates, timezone)


def _read(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError as error:
        remedy = "Write year, month and day. For example `2030-12-25`."
        raise InvalidInputError(_FIELD, text, "this date does not exist", remedy) from error
    if not FIRST.date() + _DAY <= found < HORIZON.date() - _DAY:
        problem = f"not between {FIRST.year} and {HORIZON.year}"
        raise InvalidInputError(_FIELD, text, problem, "For example `2030-12-25`.")
    return found


def _spans(day: date, timezone: str) -> Iterator[tuple[datetime, datetime]]:
    """When the clock shows *day*: from an instant to another one, excluded. Twice, if it is set
    back from the next day.
    """
    midnight = datetime.combine(day, time(), FIRST.tzinfo)
    low, until = midnight - _NEAR, midnight + _NEAR
    ahead = offset(low, zone(timezone))
    for change in [*changes(timezone, low, until), None]:
        high = until if change is None else change.at
        begin, end = max(low, midnight - ahead), min(high, midnight - ahead + _DAY)
        if begin < end:
            yield begin, end
        if change is not None:
            low, ahead = change.at, change.after
