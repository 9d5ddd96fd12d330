"""The occurrences of a schedule, one generator per type. `occurrences` covers all types;
`next_instant` returns the first occurrence.

This module is deterministic: it reads no clock, uses no randomness and stops at `HORIZON`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import merge

from nextfire.dataclass import dataclass
from nextfire.domain.cron import read_cron
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.excluded import excluded
from nextfire.domain.instants import MOMENT, cut, isoformat
from nextfire.domain.schedule import (
    EXAMPLES,
    MAX_DATES,
    MIN_INTERVAL,
    UNTIMED,
    Dst,
    Occurrence,
    Schedule,
    ScheduleType,
)
from nextfire.domain.schedule_text import instant_or_wall_time, parse_duration, read_instant
from nextfire.domain.wall_clock import at_wall_times, in_fixed_offset, next_of
from nextfire.domain.zones import FIRST, HORIZON, zone


def next_instant(schedule: Schedule, after: datetime) -> datetime | None:
    """The first occurrence strictly after *after* and `effective_from`; None after the last.

    Raises:
        InvalidInputError: The schedule is invalid.
    """
    if schedule.type is not ScheduleType.CRON or schedule.except_dates:
        found = next(occurrences(schedule, after), None)
        return None if found is None else found.at
    span = _span(schedule, after)
    at = span.after and _next_cron(
        expression_text(schedule), schedule.timezone, schedule.dst, span.after
    )
    return at if at and at <= span.until else None


def occurrences(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    """The occurrences strictly after *after* and `effective_from`, strictly ascending.

    Raises:
        InvalidInputError: The schedule is invalid. The first `next` raises it.
    """
    span = _span(schedule, after)
    begin, without = span.after, excluded(schedule.except_dates, schedule.timezone)
    while begin is not None:
        found, begin = _SOURCES[schedule.type](schedule, begin), None
        for occurrence in found:
            if occurrence.at > span.until:
                return
            excluded_until = without.end_at(occurrence.at)
            if excluded_until is not None:
                begin = excluded_until - MOMENT
                break
            yield occurrence


def check(schedule: Schedule) -> datetime | None:
    """Validate a schedule before it is stored. Returns its first occurrence; None for types without
    a schedule.

    Raises:
        InvalidInputError: The schedule is invalid, or never fires after `effective_from`.
    """
    start, end = bounds(schedule.start_at, schedule.end_at, schedule.timezone)
    if start is not None and end is not None and end < start:
        raise InvalidInputError(
            "endAt",
            schedule.end_at,
            f"before startAt, {isoformat(start)}",
            f"Use a later instant. For example `{isoformat(start + timedelta(days=1))}`.",
        )
    first = next_instant(schedule, schedule.effective_from)
    if first is None and schedule.type not in UNTIMED:
        raise _never(schedule, start, end)
    return first


def _never(schedule: Schedule, start: datetime | None, end: datetime | None) -> InvalidInputError:
    """The error for *schedule*, which has no occurrences."""
    since = isoformat(schedule.effective_from)
    if end is not None and end <= schedule.effective_from:
        later = isoformat(min(schedule.effective_from + timedelta(days=1), HORIZON - MOMENT))
        return InvalidInputError(
            "endAt",
            schedule.end_at,
            f"not after {since}, so nothing fires",
            f"Use a later instant. For example `{later}`.",
        )
    whole = replace(schedule, except_dates=())
    first = next_instant(whole, schedule.effective_from)
    if first is not None:
        return InvalidInputError(
            "exceptDates",
            [*schedule.except_dates],
            f"nothing fires after {since} except on these dates",
            f"Omit the date of an occurrence. For example that of `{isoformat(first)}`.",
        )
    first = next_instant(replace(whole, end_at=None), schedule.effective_from)
    if first is not None:
        return InvalidInputError(
            "endAt",
            schedule.end_at,
            f"before the first occurrence, {isoformat(first)}",
            f"Use that or a later instant. For example `{isoformat(first)}`.",
        )
    if start is not None and schedule.type in _FEW:
        return _never_from(schedule, start)
    tomorrow = isoformat(schedule.effective_from + timedelta(days=1))
    example = {
        ScheduleType.ONCE: tomorrow,
        ScheduleType.DATES: f'["{tomorrow}"]',
    }.get(schedule.type, EXAMPLES[schedule.type])
    remedy = "Use an instant in the future."
    if schedule.type is ScheduleType.CRON:
        remedy = "If day of month or day of week begins with *, a day must match both."
    return InvalidInputError(
        "schedule",
        schedule.expression,
        f"never fires after {since} and before {HORIZON.year}",
        f"{remedy} For example `{example}`.",
    )


_FEW = frozenset({ScheduleType.ONCE, ScheduleType.DATES, ScheduleType.DELAY})
"""The types whose occurrences can all be before `startAt`."""


def _never_from(schedule: Schedule, start: datetime) -> InvalidInputError:
    """The error for *schedule*, whose occurrences are all before *start*, its `startAt`."""
    since = schedule.effective_from
    if schedule.type is ScheduleType.DELAY:
        at = isoformat(cut(since) + parse_duration(expression_text(schedule), "schedule"))
        return InvalidInputError(
            "startAt",
            schedule.start_at,
            f"after the occurrence, {at}",
            f"Omit it, or use that or an earlier instant. For example `{at}`.",
        )
    later = isoformat(max(start, since) + timedelta(days=1))
    example = f'["{later}"]' if schedule.type is ScheduleType.DATES else later
    return InvalidInputError(
        "schedule",
        schedule.expression,
        f"never fires after {isoformat(since)} and at or after startAt, {isoformat(start)}",
        f"Omit startAt, or use a later instant. For example `{example}`.",
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """The occurrences in (`after`, `until`]; empty if `after` is None."""

    after: datetime | None
    until: datetime


def _span(schedule: Schedule, after: datetime) -> _Span:
    start, end = bounds(schedule.start_at, schedule.end_at, schedule.timezone)
    after = max(after, schedule.effective_from, FIRST - MOMENT)
    if start is not None:
        after = max(after, start - MOMENT)
    until = HORIZON - MOMENT if end is None else end
    return _Span(cut(after) if after < until else None, until)


@lru_cache(maxsize=4096)
def bounds(
    start_at: str | None, end_at: str | None, timezone: str
) -> tuple[datetime | None, datetime | None]:
    zone(timezone)
    return (
        None if start_at is None else read_instant(start_at, timezone, "startAt"),
        None if end_at is None else read_instant(end_at, timezone, "endAt"),
    )


def _once(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    return _of_dates(
        (expression_text(schedule),), schedule.timezone, Dst.ONCE, after, ("schedule",)
    )


def _dates(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    texts = schedule.expression
    if not isinstance(texts, tuple) or not 1 <= len(texts) <= MAX_DATES:
        raise InvalidInputError(
            "schedule",
            texts,
            f"not a list of 1 to {MAX_DATES} instants",
            f"For example `{EXAMPLES[ScheduleType.DATES]}`.",
        )
    fields = tuple(f"schedule.{index}" for index in range(len(texts)))
    return _of_dates(texts, schedule.timezone, schedule.dst, after, fields)


def _of_dates(
    texts: tuple[str, ...], timezone: str, dst: Dst, after: datetime, fields: tuple[str, ...]
) -> Iterator[Occurrence]:
    instants, walls = _sorted_dates(texts, fields)
    local = zone(timezone)
    named = (Occurrence(at, in_fixed_offset(at, local)) for at in instants if at > after)
    last = None
    for each in merge(
        at_wall_times(next_of(walls), timezone, dst, after), named, key=lambda found: found.at
    ):
        if each.at != last:
            yield each
        last = each.at


@lru_cache(maxsize=32)  # a list of 1,000 instants takes 220 KB
def _sorted_dates(
    texts: tuple[str, ...], fields: tuple[str, ...]
) -> tuple[tuple[datetime, ...], tuple[datetime, ...]]:
    """Instants and wall-clock times, each ascending."""
    named = {instant_or_wall_time(text, field) for text, field in zip(texts, fields, strict=True)}
    return (
        tuple(sorted(at for at in named if at.tzinfo is not None)),
        tuple(sorted(at for at in named if at.tzinfo is None)),
    )


def _delay(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    at = cut(schedule.effective_from) + parse_duration(expression_text(schedule), "schedule")
    if at > after:
        yield Occurrence(at, in_fixed_offset(at, zone(schedule.timezone)))


def _interval(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    period = parse_duration(expression_text(schedule), "schedule")
    if period < MIN_INTERVAL:
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            "shorter than a second",
            "Use PT1S or more. For example `PT10S`.",
        )
    start, _ = bounds(schedule.start_at, None, schedule.timezone)
    at = anchor = cut(schedule.effective_from) if start is None else start
    if at <= after:
        at = anchor + ((after - anchor) // period + 1) * period
    local = zone(schedule.timezone)
    while True:  # the caller stops at `HORIZON` or before
        yield Occurrence(at, in_fixed_offset(at, local))
        at += period


def cron_occurrences(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    cron = read_cron(expression_text(schedule))
    return at_wall_times(
        cron.next_wall, schedule.timezone, None if cron.elapsed else schedule.dst, after
    )


@lru_cache(maxsize=16384)
def _next_cron(text: str, timezone: str, dst: Dst, after: datetime) -> datetime | None:
    """Cached, because many jobs have the same expression and instant."""
    found = next(
        cron_occurrences(Schedule(ScheduleType.CRON, text, timezone, after, dst=dst), after), None
    )
    return None if found is None else found.at


def _manual(_schedule: Schedule, _after: datetime) -> Iterator[Occurrence]:
    return iter(())


_SOURCES: dict[ScheduleType, Callable[[Schedule, datetime], Iterator[Occurrence]]] = {
    ScheduleType.ONCE: _once,
    ScheduleType.DELAY: _delay,
    ScheduleType.CRON: cron_occurrences,
    ScheduleType.INTERVAL: _interval,
    ScheduleType.DATES: _dates,
    ScheduleType.MANUAL: _manual,
    ScheduleType.AFTER: _manual,
}


def expression_text(schedule: Schedule) -> str:
    if not isinstance(schedule.expression, str):
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            f"not a string, which {schedule.type} needs",
            f"For example `{EXAMPLES[schedule.type]}`.",
        )
    return schedule.expression
