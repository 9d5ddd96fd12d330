"""When a job is due. One function answers for every type: `next_instant`.

Cron arithmetic is croniter's, on wall-clock time; the way from wall clock to instants is ours:

- A wall-clock time that a zone skips (spring) fires once, at the change.
- A wall-clock time that a zone repeats (autumn) fires once, the first time round.
- A cron with wildcard hours (`*` or `*/n` in the hour field) follows elapsed time: it fires in
both rounds of a
  repeated hour, and a skipped hour has no occurrences.

Day of month and day of week, where both are restricted, are joined by *or*, as in Vixie cron.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut, isoformat

MAX_DELAY = timedelta(days=366 * 5)
_YEARS = range(1970, 2286)
"""Of a named instant: the calendar has room on both sides, a sort key has 13 digits."""
_FIELDS = 5
_FIELD_NAMES = ("minute", "hour", "day of month", "month", "day of week")
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NAMES = {
    name: number
    for names in (
        (["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1),
        (["sun", "mon", "tue", "wed", "thu", "fri", "sat"], 0),
    )
    for number, name in enumerate(names[0], names[1])
}
_TOKEN = re.compile(r"[a-z0-9*/,#\-]+")
_RANDOM = re.compile(r"(?<![a-z])[rh](?![a-z])")  # croniter would draw lots, each time anew
_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?)?"
)


class ScheduleType(StrEnum):
    """How `schedule` is read."""

    ONCE = "ONCE"
    DELAY = "DELAY"
    CRON = "CRON"


@dataclass(frozen=True, slots=True)
class Schedule:
    """When: `expression` read by `type` in `timezone` (an IANA name), counted from
    `effective_from`.
    """

    type: ScheduleType
    expression: str
    timezone: str
    effective_from: datetime


def next_instant(schedule: Schedule, after: datetime) -> datetime | None:
    """The first occurrence strictly after *after* and after `effective_from`; None where there is
    none.

    Raises:
        InvalidInputError: The expression or the zone cannot be read.
    """
    found = _NEXT[schedule.type](schedule, max(after, schedule.effective_from))
    return None if found is None else cut(found)


def check(schedule: Schedule) -> datetime:
    """The first occurrence of a schedule that is about to be stored.

    Raises:
        InvalidInputError: It cannot be read, or never fires after `effective_from`.
    """
    first = next_instant(schedule, schedule.effective_from)
    if first is None:
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            f"never fires after {isoformat(schedule.effective_from)}",
            "Name an instant in the future.",
        )
    return first


def parse_duration(text: str, field: str) -> timedelta:
    """An ISO 8601 duration of weeks, days, hours, minutes and seconds, e.g. ``PT90S`` or
    ``P1DT12H``.

    Raises:
        InvalidInputError: It is none, is zero or longer than `MAX_DELAY`; years and months have no
        fixed length.
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
            "Write for example PT5S, PT10M, PT1H30M or P7D.",
        )
    return duration


def zone(name: str) -> ZoneInfo:
    """The time zone called *name*.

    Raises:
        InvalidInputError: No such zone in the IANA database.
    """
    try:
        return ZoneInfo(name)
    except (
        ValueError,
        OSError,
    ) as error:  # a missing zone is a KeyError by class, an OSError by path
        raise _unknown_zone(name) from error
    except KeyError as error:
        raise _unknown_zone(name) from error


def _unknown_zone(name: str) -> InvalidInputError:
    return InvalidInputError(
        "timezone", name, "no such time zone", "Use an IANA name such as Europe/Berlin or UTC."
    )


def _next_once(schedule: Schedule, after: datetime) -> datetime | None:
    local = zone(schedule.timezone)
    try:
        at = datetime.fromisoformat(schedule.expression)
    except ValueError as error:
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            "not an ISO 8601 instant",
            "Write for example 2026-05-24T10:00:00Z, or leave the offset out and give a timezone.",
        ) from error
    if at.year not in _YEARS:
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            f"not of the years {_YEARS[0]} to {_YEARS[-1]}",
            "Name an instant in the future.",
        )
    instant = _to_instant(at, local) if at.tzinfo is None else at.astimezone(UTC)
    instant = cut(instant)
    return instant if instant > after else None


def _next_delay(schedule: Schedule, after: datetime) -> datetime | None:
    instant = schedule.effective_from + parse_duration(schedule.expression, "schedule")
    return instant if instant > after else None


def _next_cron(schedule: Schedule, after: datetime) -> datetime | None:
    expression = _cron(schedule.expression)
    try:
        return _next_cron_instant(expression, zone(schedule.timezone), after.astimezone(UTC))
    except CroniterBadDateError as error:
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            "names dates that never come",
            "Check day of month against month, e.g. 30 February.",
        ) from error


_NEXT: dict[ScheduleType, Callable[[Schedule, datetime], datetime | None]] = {
    ScheduleType.ONCE: _next_once,
    ScheduleType.DELAY: _next_delay,
    ScheduleType.CRON: _next_cron,
}


@lru_cache(maxsize=4096)
def _cron(text: str) -> str:
    """*text* as five lower-case fields, refused where croniter would read what we do not mean."""
    if text.strip().startswith("@") and text.strip().lower() not in _MACROS:
        raise _bad_cron(text, "unknown macro", f"Use one of {', '.join(_MACROS)}.")
    expression = _MACROS.get(text.strip().lower(), text.lower())
    fields = expression.split()
    if len(fields) != _FIELDS:
        raise _bad_cron(
            text,
            f"has {len(fields)} fields",
            "Give five: minute, hour, day of month, month, day of week (no seconds, no years).",
        )
    for name, field in zip(_FIELD_NAMES, fields, strict=True):
        if not _TOKEN.fullmatch(field) or _RANDOM.search(field):
            raise _bad_cron(
                text, f"{field!r} in the {name} field", "Use numbers, names, * / , - L and #."
            )
        for part in field.split(","):
            low, dash, high = part.partition("/")[0].partition("-")
            if dash and _number(low) > _number(high):
                raise _bad_cron(
                    text, f"the range {part!r} runs backward", "Write two ranges joined by a comma."
                )
    expression = " ".join(fields)
    try:
        croniter.expand(expression)
    except (CroniterBadCronError, KeyError, ValueError) as error:
        raise _bad_cron(
            text, f"not a cron expression ({error})", "Example: 0 3 * * 1-5 is 03:00 on weekdays."
        ) from error
    return expression


def _number(text: str) -> int:
    # What is neither a number nor a name is left to croniter to refuse.
    return int(text) if text.isdigit() else _NAMES.get(text, -1)


def _bad_cron(text: str, problem: str, remedy: str) -> InvalidInputError:
    return InvalidInputError("schedule", text, problem, remedy)


@lru_cache(maxsize=16384)
def _next_cron_instant(expression: str, local: ZoneInfo, after: datetime) -> datetime:
    """Thousands of jobs share one expression and instant: the answer is kept."""
    if expression.split()[1].startswith("*"):
        return _next_elapsed(expression, local, after)
    wall = after.astimezone(local).replace(tzinfo=None)
    walk = croniter(expression, wall, ret_type=datetime)
    while True:
        found = _to_instant(walk.get_next(datetime), local)
        if found > after:
            return found


def _next_elapsed(expression: str, local: ZoneInfo, after: datetime) -> datetime:
    """Walk in the offset that holds at *after*; where the zone changes it first, go on from there
    in the new one.
    """
    while True:
        offset = _offset(after, local)
        found = _next_wall(expression, after + offset) - offset
        change = _next_change(local, after, found)
        if change is None:
            return found
        # One millisecond back, so that an occurrence at the very change is seen.
        start = change - timedelta(milliseconds=1)
        offset = _offset(change, local)
        found = _next_wall(expression, start + offset) - offset
        if _offset(found, local) == offset and _next_change(local, change, found) is None:
            return found
        after = change


def _next_wall(expression: str, wall: datetime) -> datetime:
    naive = wall.replace(tzinfo=None)
    found: datetime = croniter(expression, naive, ret_type=datetime).get_next(datetime)
    return found.replace(tzinfo=UTC)


def _next_change(local: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (*after*, *until*] at which the zone's offset is another; None if there
    is none.
    """
    offset, low = _offset(after, local), after
    while low < until:
        high = min(low + timedelta(days=1), until)
        if _offset(high, local) != offset:
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) / 2
                low, high = (low, middle) if _offset(middle, local) != offset else (middle, high)
            # Zones change on whole seconds.
            return high.replace(microsecond=0)
        low = high
    return None


def _offset(at: datetime, local: ZoneInfo) -> timedelta:
    return at.astimezone(local).utcoffset() or timedelta()


def _to_instant(wall: datetime, local: ZoneInfo) -> datetime:
    """The instant of a naive wall-clock time: the first round if repeated, the change if
    skipped.
    """
    first = wall.replace(tzinfo=local, fold=0).astimezone(UTC)
    if first.astimezone(local).replace(tzinfo=None) == wall:
        return first
    # Skipped. fold=0 reads it with the offset before the change, which lands after it; fold=1
    # lands before.
    before = wall.replace(tzinfo=local, fold=1).astimezone(UTC)
    return _next_change(local, before, first) or first
