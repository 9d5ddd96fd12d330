"""Parses durations and instants of job documents."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut
from nextfire.domain.schedule import MAX_DELAY
from nextfire.domain.wall_clock import first_at
from nextfire.domain.zones import FIRST, HORIZON

_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?)?",
    re.ASCII,
)
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_MONTHS = 12


@lru_cache(maxsize=1024)
def parse_duration(text: str, field: str) -> timedelta:
    """Parse an ISO 8601 duration of weeks, days, hours, minutes and seconds, e.g. ``PT90S`` or
    ``P1DT12H``.

    Raises:
        InvalidInputError: *text* is not such a duration, is zero or is longer than `MAX_DELAY`.
            Years and months are rejected because their length varies.
    """
    match = _DURATION.fullmatch(text)
    parts = {unit: float(n) for unit, n in match.groupdict().items() if n} if match else {}
    try:
        duration = timedelta(**parts)
    except OverflowError:
        duration = timedelta.max
    if not timedelta() < duration <= MAX_DELAY:
        raise InvalidInputError(
            field,
            text,
            f"not an ISO 8601 duration between PT0.001S and P{MAX_DELAY.days}D",
            "Write it like PT5S, PT1H30M or P7D. For example `PT10M`.",
        )
    return duration


def read_instant(text: str, timezone: str, field: str, *, whose: str = "in `timezone`") -> datetime:
    """Parse an ISO 8601 instant; returns it in UTC. Without an offset, *text* is a wall-clock time
    in *timezone*; if that time occurs twice, the first one. *whose*: describes the zone in errors.

    Raises:
        InvalidInputError: *text* is not an instant (an error of *field*), or the zone is unknown.
    """
    named = instant_or_wall_time(text, field, whose)
    if named.tzinfo is not None:
        return named
    return first_at(named, timezone)


def _not_on_the_calendar(text: str) -> tuple[str, str]:
    """The problem of the date or time *text*, which has the form of one, and the remedy."""
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    if 1 <= month <= _MONTHS and FIRST.year < year < HORIZON.year:
        days = monthrange(year, month)[1]
        if day > days:
            problem = f"this date does not exist: {text[:7]} has {days} days"
            return problem, f"For example `{text[:8]}{days}`."
    remedy = "Months are 01 to 12, hours and offsets 00 to 23, minutes and seconds 00 to 59."
    return "this date or time does not exist", f"{remedy} For example `2030-05-24T10:00:00Z`."


def instant_or_wall_time(text: str, field: str, whose: str = "in `timezone`") -> datetime:
    """*text* as an instant in UTC, or naive if it has no offset; rounded down to milliseconds."""
    has_form = _INSTANT.fullmatch(text)
    try:
        if not has_form:
            raise ValueError("another form")
        at = datetime.fromisoformat(text)
    except ValueError as error:
        problem = "not an ISO 8601 instant"
        remedy = f"Without an offset it is {whose}. For example `2030-05-24T10:00:00Z`."
        if has_form:
            problem, remedy = _not_on_the_calendar(text)
        raise InvalidInputError(field, text, problem, remedy) from error
    # One day of margin at both ends, so that zone offsets stay in range.
    room = timedelta(days=1)
    earliest, end = FIRST + room, HORIZON - room
    if not earliest <= at.replace(tzinfo=UTC) < end:
        raise InvalidInputError(
            field,
            text,
            f"not between {earliest.date()} (included) and {end.date()} (excluded)",
            "For example `2030-05-24T10:00:00Z`.",
        )
    if at.tzinfo is None:
        return at.replace(microsecond=at.microsecond // 1000 * 1000)
    return cut(at)
