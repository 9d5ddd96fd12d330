"""Random cron expressions and their occurrences, computed without the code under test.

`Expression.matches` says whether an expression matches one wall-clock minute. `walked` walks every
minute of UTC and applies the rules for clock changes: slow but simple.
"""

from __future__ import annotations

import calendar
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import TypeAlias
from zoneinfo import ZoneInfo

from nextfire.domain.zones import changes

LONG = bool(os.environ.get("NEXTFIRE_LONG"))  # noqa: TID251 — read by tests only
FIRST_DEATHS = int(os.environ.get("NEXTFIRE_FIRST_DEATHS", "1"))  # noqa: TID251 — read by tests only
"""Of this number of first deaths, pairs of crashes are played for one."""
MINUTE = timedelta(minutes=1)
YEARS = datetime(2008, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "America/Havana",
    "America/Caracas",
    "America/Asuncion",
    "Antarctica/Troll",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Istanbul",
    "Pacific/Apia",
    "Pacific/Chatham",
)
"""Offsets of whole, half and quarter hours; changes at midnight, of standard time, of a whole day.
"""

Days: TypeAlias = Callable[[date], bool]

_SMALL_HOURS = (
    ("0", frozenset({0})),
    ("1", frozenset({1})),
    ("2", frozenset({2})),
    ("0,2-3", frozenset({0, 2, 3})),
    ("1-2,23", frozenset({1, 2, 23})),
    ("0-23", frozenset(range(24))),
    ("*", frozenset(range(24))),
    ("*/2", frozenset(range(0, 24, 2))),
)


@dataclass(frozen=True)
class Expression:
    """A cron expression and its meaning. `elapsed`: its hour field begins with ``*``."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    of_month: Days
    of_week: Days
    both: bool

    @property
    def elapsed(self) -> bool:
        return self.text.split()[1].startswith("*")

    @property
    def minute_wildcard(self) -> bool:
        return self.text.startswith("*")

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours:
            return False
        return self.matches_day(wall.date())

    def matches_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        if self.both:
            return self.of_month(day) and self.of_week(day)
        return self.of_month(day) or self.of_week(day)


def expression(random: Random) -> Expression:
    """A random expression that fires often enough for a test. Half of them fire daily in the small
    hours, when clocks change.
    """
    minute, minutes = _numbers(random, 0, 59, star=0.25)
    if random.random() < 0.5:
        hour, hours = random.choice(_SMALL_HOURS)
        every = frozenset(range(1, 13))
        return Expression(
            f"{minute} {hour} * * *", minutes, hours, every, _any_day, _any_day, both=True
        )
    hour, hours = _numbers(random, 0, 23, star=0.4)
    dom, of_month = _days_of_month(random)
    month, months = _numbers(random, 1, 12, star=0.8)
    dow, of_week = _days_of_week(random)
    both = dom.startswith("*") or dow.startswith("*")
    text = f"{minute} {hour} {dom} {month} {dow}"
    return Expression(text, minutes, hours, months, of_month, of_week, both)


def walked(
    cron: Expression, local: ZoneInfo, dst: str, after: datetime, until: datetime
) -> Iterator[datetime]:
    """The occurrences in (*after*, *until*], both whole minutes in UTC."""
    at = after - timedelta(hours=26)
    high = _wall(at, local)
    while at < until:
        at += MINUTE
        wall = _wall(at, local)
        if cron.elapsed:
            fires = cron.matches(wall)
        else:
            jumped = range(1, (wall - high) // MINUTE + 1)  # empty while times repeat
            fires = any(cron.matches(high + n * MINUTE) for n in jumped)
            fires = fires or (dst == "EACH" and cron.matches(wall))
        high = max(high, wall)
        if fires and at > after:
            yield at


def cases(seed: int, count: int) -> Iterator[tuple[Expression, str, datetime]]:
    """Expressions, zones and instants, most of them near a clock change of the zone.

    With NEXTFIRE_LONG in the environment, 20 times as many.
    """
    random = Random(seed)  # noqa: S311 — reproducible cases
    turns = {name: [change.at for change in changes(name, *YEARS)] for name in ZONES}
    for _ in range(count * (20 if LONG else 1)):
        cron, name = expression(random), random.choice(ZONES)
        if turns[name] and random.random() < 0.85:
            near = random.choice(turns[name])
            yield cron, name, near + MINUTE * random.randint(-1600, 200)
        else:
            minutes = (YEARS[1] - YEARS[0]) // MINUTE
            yield cron, name, YEARS[0] + MINUTE * random.randrange(minutes)


def _wall(at: datetime, local: ZoneInfo) -> datetime:
    return at.astimezone(local).replace(tzinfo=None)


def _numbers(random: Random, low: int, high: int, *, star: float) -> tuple[str, frozenset[int]]:
    whole = range(low, high + 1)
    if random.random() < star:
        step = random.choice((1, 1, 2, 3, 5))
        return "*" if step == 1 else f"*/{step}", frozenset(whole[::step])
    texts, values = [], set[int]()
    for _ in range(random.choice((1, 1, 2, 3))):
        first, last = sorted((random.choice(whole), random.choice(whole)))
        step = random.randint(1, max(1, last - first))
        form = random.choice(("one", "one", "range", "stepped", "from"))
        if form == "one" or first == last:
            texts.append(str(first))
            values.add(first)
        elif form == "range":
            texts.append(f"{first}-{last}")
            values.update(range(first, last + 1))
        elif form == "stepped":
            texts.append(f"{first}-{last}/{step}")
            values.update(range(first, last + 1, step))
        else:
            step = random.randint(1, high - first)
            texts.append(f"{first}/{step}")
            values.update(range(first, high + 1, step))
    return ",".join(texts), frozenset(values)


def _days_of_month(random: Random) -> tuple[str, Days]:
    if random.random() < 0.5:
        step = random.choice((1, 1, 1, 2, 3))
        named = range(1, 32)[::step]
        return "*" if step == 1 else f"*/{step}", lambda day: day.day in named
    if random.random() < 0.3:
        return "L", lambda day: day.day == _last(day)
    text, days = _numbers(random, 1, 28, star=0)
    if "/" in text:  # steps were computed for 28 days; a month may have more
        text, days = "1,15", frozenset({1, 15})
    return text, lambda day: day.day in days


def _days_of_week(random: Random) -> tuple[str, Days]:
    names = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
    form = random.choice(("*", "*", "*", "*/2", "one", "name", "range", "nth", "last", "list"))
    day = random.randrange(8)
    if form == "*":
        return "*", _any_day
    if form == "*/2":
        return "*/2", lambda at: at.isoweekday() % 7 in {0, 2, 4, 6}
    if form == "name":
        return names[day % 7], lambda at: at.isoweekday() % 7 == day % 7
    if form == "range":
        return "1-5", lambda at: at.isoweekday() <= 5
    if form == "nth":
        nth = random.randint(1, 4)
        return (
            f"{day}#{nth}",
            lambda at: at.isoweekday() % 7 == day % 7 and (at.day + 6) // 7 == nth,
        )
    if form == "last":
        return f"{day}L", lambda at: at.isoweekday() % 7 == day % 7 and at.day + 7 > _last(at)
    if form == "list":
        return (
            f"{day},3#2",
            lambda at: (
                at.isoweekday() % 7 == day % 7 or (at.isoweekday() == 3 and 8 <= at.day <= 14)
            ),
        )
    return str(day), lambda at: at.isoweekday() % 7 == day % 7


def _any_day(_day: date) -> bool:
    return True


def _last(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]
