"""Time zones: their rules, and when their clocks change.

The rules are those of the packaged IANA database, never of the machine: every function and worker
of one release answers alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from nextfire.domain.errors import InvalidInputError

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
HORIZON = datetime(2100, 1, 1, tzinfo=UTC)
"""No occurrence is before `FIRST`, or at or after `HORIZON`."""

_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
_LOOK = timedelta(days=3)  # no zone has had two changes within a week since 1970
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Change:
    """At `at` a zone's offset from UTC goes from `before` to `after`."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def wall_before(self) -> datetime:
        """What the clock would show if it did not change."""
        return wall(self.at, self.before)

    @property
    def wall_after(self) -> datetime:
        """What the clock shows."""
        return wall(self.at, self.after)


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The time zone called *name*.

    Raises:
        InvalidInputError: No such zone in the IANA database.
    """
    if _NAME.fullmatch(name) and name in _names():
        file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
        with file.open("rb") as data:
            return ZoneInfo.from_file(data, key=name)
    raise InvalidInputError(
        "timezone", name, "no such time zone", "Use an IANA name. For example `Europe/Berlin`."
    )


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def offset(at: datetime, local: ZoneInfo) -> timedelta:
    """The zone's offset from UTC at the instant *at*."""
    return at.astimezone(local).utcoffset() or timedelta()


def wall(at: datetime, by: timedelta) -> datetime:
    """What a clock shows at *at* that is *by* ahead of UTC, naive."""
    return at.replace(tzinfo=None) + by


def changes(name: str, after: datetime, until: datetime) -> Iterator[Change]:
    """The changes of the zone called *name* in (*after*, *until*], in UTC."""
    for year in range(after.year, until.year + 1):
        for change in _changes_of(name, year):
            if change.at > until:
                return
            if change.at > after:
                yield change


@lru_cache(maxsize=4096)
def _changes_of(name: str, year: int) -> tuple[Change, ...]:
    """The changes in (1 January *year*, 1 January of the next]."""
    local = zone(name)
    low, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    before = offset(low, local)
    found: list[Change] = []
    while low < end:
        high = min(low + _LOOK, end)
        after = offset(high, local)
        if after != before:
            found.append(Change(_bisected(low, high, before, local), before, after))
        low, before = high, after
    return tuple(found)


def _bisected(low: datetime, high: datetime, before: timedelta, local: ZoneInfo) -> datetime:
    """The second in (*low*, *high*] at which the offset ceases to be *before*."""
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        if offset(middle, local) == before:
            low = middle
        else:
            high = middle
    return high
