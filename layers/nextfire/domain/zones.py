"""Time zones: rules and offset changes.

The rules come from the bundled IANA database, never from the host. So all functions and workers of
a release compute the same results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Self
from zoneinfo import ZoneInfo

from nextfire.dataclass import dataclass
from nextfire.domain.errors import InvalidInputError

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
HORIZON = datetime(2100, 1, 1, tzinfo=UTC)
"""Occurrences are at or after `FIRST` and before `HORIZON`."""

_TZDATA = import_module("tzdata")  # the package has no types
_RELEASE = str(_TZDATA.IANA_VERSION)
_FILES = Path(str(_TZDATA.__file__)).parent
_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(0?[0-9]|1[0-4])(?::?00)?")
_ABBREVIATION = re.compile(r"[A-Z]{3,4}|[a-z]{3,4}")
_MIN_SIMILARITY = 0.8
"""Minimum similarity of a suggested name. Names of zones resemble each other: `Asia/Bangalore` is
like `Asia/Singapore`."""
_LOOK = timedelta(days=3)  # since 1970 no zone has had two changes within a week
_SECOND = timedelta(seconds=1)
_MOMENT = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A change of the UTC offset of a zone at `at`, from `before` to `after`."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def wall_before(self) -> datetime:
        """The wall-clock time at `at` with the old offset."""
        return wall(self.at, self.before)

    @property
    def wall_after(self) -> datetime:
        """The wall-clock time at `at` with the new offset."""
        return wall(self.at, self.after)


@dataclass(frozen=True, slots=True)
class ZoneReading:
    """How an instant was computed from a wall-clock time: with which `release` of the IANA
    database, for example "2025b", and with which UTC `offset`.
    """

    release: str
    offset: timedelta

    @classmethod
    def of(cls, at: datetime, name: str) -> Self:
        """The reading of the instant *at* in the zone *name*. At a clock change, with the offset
        before it: the wall-clock times that the change skips are read as if it had not come yet.
        """
        return cls(release(), offset(at - _MOMENT, zone(name)))

    @property
    def is_outdated(self) -> bool:
        """Whether this process has a newer release. An older one does not judge the instant."""
        return self.release < release()

    @property
    def is_newer(self) -> bool:
        """Whether this process has an older release."""
        return self.release > release()


def release() -> str:
    """The release of the IANA database of this process. Later releases sort after earlier ones."""
    return _RELEASE


@lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The time zone with the IANA name *name*.

    Raises:
        InvalidInputError: The IANA database does not contain the zone.
    """
    if _NAME.fullmatch(name) and name in _names():
        with _FILES.joinpath("zoneinfo", *name.split("/")).open("rb") as data:
            return ZoneInfo.from_file(data, key=name)
    raise InvalidInputError("timezone", name, "time zone not found", _remedy(name))


def _remedy(name: str) -> str:
    """The remedy for *name*, which is not the name of a zone."""
    from nextfire.domain.remedies import closest  # noqa: PLC0415 — only for an error

    known: dict[str, str] = {}  # by the whole name, and by its city
    for each in sorted(_names()):  # of a city with several names, the last one: US, not Canada
        known[_plain(each.rpartition("/")[2])] = each
    known |= {_plain(each): each for each in _names()}
    plain = _plain(name)
    if (by := _OFFSET.fullmatch(plain.upper())) is not None:
        fixed = f"Etc/GMT{'-' if by[1] == '+' else '+'}{int(by[2])}"
        return f"The name of a fixed offset has the opposite sign. For example `{fixed}`."
    if plain not in known and _ABBREVIATION.fullmatch(name):
        return "Abbreviations are ambiguous: use an IANA name. For example `Europe/Berlin`."
    like = closest(plain, known, _MIN_SIMILARITY)
    return like or "Use an IANA name. For example `Europe/Berlin`."


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(" ", "")


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset((_FILES / "zones").read_text("utf-8").split())


def offset(at: datetime, local: ZoneInfo) -> timedelta:
    """The UTC offset of the zone *local* at the instant *at*."""
    return at.astimezone(local).utcoffset() or timedelta()


def wall(at: datetime, by: timedelta) -> datetime:
    """The wall-clock time at *at* with the UTC offset *by*, as a naive datetime."""
    return at.replace(tzinfo=None) + by


def changes(name: str, after: datetime, until: datetime) -> Iterator[OffsetChange]:
    """The offset changes of the zone *name* in (*after*, *until*], ascending."""
    for year in range(after.year, until.year + 1):
        for change in _changes_of(name, year):
            if change.at > until:
                return
            if change.at > after:
                yield change


@lru_cache(maxsize=4096)
def _changes_of(name: str, year: int) -> tuple[OffsetChange, ...]:
    """The offset changes in (1 January of *year*, 1 January of the next year]."""
    local = zone(name)
    low, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    before = offset(low, local)
    found: list[OffsetChange] = []
    while low < end:
        high = min(low + _LOOK, end)
        after = offset(high, local)
        if after != before:
            found.append(OffsetChange(_bisected(low, high, before, local), before, after))
        low, before = high, after
    return tuple(found)


def _bisected(low: datetime, high: datetime, before: timedelta, local: ZoneInfo) -> datetime:
    """The second in (*low*, *high*] at which the offset stops being *before*."""
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        if offset(middle, local) == before:
            low = middle
        else:
            high = middle
    return high
