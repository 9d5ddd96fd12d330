"""Schedules in readable form, and their occurrences in local time and in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.recurrence import occurrences
from nextfire.domain.schedule import Dst, Occurrence, Schedule, ScheduleType

BERLIN = "Europe/Berlin"
LONG_AGO = parse_instant("1990-01-01T00:00:00Z")


def schedule(
    kind: str,
    expression: str | Sequence[str] | None,
    timezone: str = "UTC",
    *,
    since: str = "",
    dst: str = "ONCE",
    except_dates: tuple[str, ...] = (),
    **bounds: str,
) -> Schedule:
    if expression is not None and not isinstance(expression, str):
        expression = tuple(expression)
    effective_from = parse_instant(since) if since else LONG_AGO
    return Schedule(
        ScheduleType(kind),
        expression,
        timezone,
        effective_from,
        dst=Dst(dst),
        except_dates=except_dates,
        **bounds,
    )


def next_occurrences(of: Schedule, after: datetime, count: int) -> list[Occurrence]:
    return [*islice(occurrences(of, after), count)]


def local(of: Schedule, after: str, count: int) -> list[str]:
    found = next_occurrences(of, parse_instant(after), count)
    assert all(each.at == each.local for each in found)
    return [each.local.isoformat() for each in found]


def utc(of: Schedule, after: str, count: int) -> list[str]:
    return [isoformat(each.at) for each in next_occurrences(of, parse_instant(after), count)]


SPRING, AUTUMN = "2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"
"""In Berlin, 02:00 becomes 03:00 on 29 March, and 03:00 becomes 02:00 on 25 October."""
