"""When a job is due. One function answers for every type: `occurrences`; `next_instant` is its
first.

A schedule names wall-clock times, instants or spans. The way from wall clock to instants:

- A time that the clock skips (spring) fires once, at the change. Several that one change skips, and
one at the change itself, are one occurrence.
- A time that comes twice (autumn) fires once, the first time round; with `dst` EACH, both times.
- A cron whose hour field begins with ``*`` goes by elapsed time, as INTERVAL does: it fires in both
rounds, and what the clock skips has no occurrences.

Nothing here reads a clock, draws lots, or searches beyond `HORIZON`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from datetime import timezone as fixed
from enum import StrEnum
from functools import lru_cache
from heapq import merge
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from nextfire.domain.cron import read_cron
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut, isoformat, to_ms
from nextfire.domain.zones import FIRST, HORIZON, changes, offset, wall, zone

MAX_DELAY = timedelta(days=366 * 5)
MIN_INTERVAL = timedelta(seconds=1)
MAX_DATES = 1000
MAX_RUNS = 100_000
MAX_JITTER = timedelta(hours=1)

_MOMENT = timedelta(milliseconds=1)  # the resolution of instants
_WALKED = 1_000  # occurrences that are sooner walked over than reckoned
_NEAR = timedelta(days=2)  # no clock is ever changed by more than a day
_SPOKEN = 3
_LAST_TWO_WITHIN = (
    timedelta(hours=1),
    timedelta(days=2),
    timedelta(days=64),
    timedelta(days=50_000),
)
"""How far back the last two of many occurrences are looked for; the last is more than there is."""
_DURATION = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,3})?)S)?)?",
    re.ASCII,
)
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


class ScheduleType(StrEnum):
    """How `schedule` is read."""

    ONCE = "ONCE"  # an instant
    DELAY = "DELAY"  # a duration from `effective_from`
    CRON = "CRON"  # five fields
    INTERVAL = "INTERVAL"  # a duration, again and again from `startAt`, else `effective_from`
    DATES = "DATES"  # a list of instants
    MANUAL = "MANUAL"  # none


class Dst(StrEnum):
    """How often a wall-clock time of a CRON or DATES fires that comes twice."""

    ONCE = "ONCE"
    EACH = "EACH"


EXAMPLES = {
    ScheduleType.ONCE: "2030-05-24T10:00:00Z",
    ScheduleType.DELAY: "PT10M",
    ScheduleType.CRON: "0 3 * * 1-5",
    ScheduleType.INTERVAL: "PT10M",
    ScheduleType.DATES: '["2030-05-24T10:00:00Z"]',
}
"""A `schedule` of each type that has one."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When: `expression` read by `type` in `timezone` (an IANA name), counted from
    `effective_from`; of that, what lies from `start_at` to `end_at`, both included.

    `start_at` and `end_at` are ISO 8601; without an offset they are of `timezone`, and one that
    comes twice is its first time round.
    """

    type: ScheduleType
    expression: str | tuple[str, ...] | None
    timezone: str
    effective_from: datetime
    start_at: str | None = None
    end_at: str | None = None
    dst: Dst = Dst.ONCE


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One instant of a schedule: `at` in UTC, `local` with the offset that its zone has then;
    `note` says what a change of the clock did to it.
    """

    at: datetime
    local: datetime
    note: str = ""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """An occurrence and its due instant, which jitter puts later."""

    occurrence: Occurrence
    due_at: datetime


def next_instant(schedule: Schedule, after: datetime) -> datetime | None:
    """The first occurrence strictly after *after* and after `effective_from`; None where there is
    none.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    if schedule.type is not ScheduleType.CRON:
        found = next(occurrences(schedule, after), None)
        return None if found is None else found.at
    span = _span(schedule, after)
    at = span.after and _next_cron(_text(schedule), schedule.timezone, schedule.dst, span.after)
    return at if at and at <= span.until else None


def occurrences(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    """The occurrences strictly after *after* and after `effective_from`, strictly ascending.

    Raises:
        InvalidInputError: The schedule cannot be read. Raised by the first `next`.
    """
    span = _span(schedule, after)
    if span.after is None:
        return
    for occurrence in _SOURCES[schedule.type](schedule, span.after):
        if occurrence.at > span.until:
            return
        yield occurrence


def next_occurrences(schedule: Schedule, after: datetime, count: int) -> list[Occurrence]:
    """The first *count* of `occurrences`.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    return list(islice(occurrences(schedule, after), count))


def upcoming(
    schedule: Schedule,
    after: datetime,
    count: int,
    *,
    max_runs: int | None = None,
    jitter_key: str = "",
    jitter_width: timedelta = timedelta(),
) -> list[Upcoming]:
    """The next *count* occurrences whose due instant is after *after*, in the order of
    occurrences; none beyond the first *max_runs* since `effective_from`.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    # One that jitter has put off may be due after `after` though its own instant is before.
    start = max(cut(after) - jitter_width, schedule.effective_from)
    left = None
    if max_runs is not None:
        left = max_runs - count_occurrences(schedule, start, at_most=max_runs)
    found: list[Upcoming] = []
    for occurrence in islice(occurrences(schedule, start), left):
        due_at = occurrence.at + jitter(jitter_key, occurrence.at, jitter_width)
        if due_at > after:
            found.append(Upcoming(occurrence, due_at))
        if len(found) == count:
            break
    return found


def count_occurrences(schedule: Schedule, until: datetime, *, at_most: int) -> int:
    """How many occurrences lie after `effective_from`, and not after *until*; counted to
    *at_most*. Many are reckoned, as in a `stretch`: a page of jobs is shown with a count for each.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    if at_most <= _WALKED:
        first = islice(occurrences(schedule, schedule.effective_from), at_most)
        return sum(1 for _ in takewhile(lambda occurrence: occurrence.at <= until, first))
    begin = next_instant(schedule, schedule.effective_from)
    if begin is None or begin > until:
        return 0
    return min(stretch(schedule, begin, until, at_most=sys.maxsize).count, at_most)


@dataclass(frozen=True, slots=True)
class Stretch:
    """`count` occurrences in a row, from `first` to `last`; `before_last` only where there are
    two.
    """

    first: datetime
    last: datetime
    count: int
    before_last: datetime | None = None


def stretch(schedule: Schedule, first: datetime, until: datetime, *, at_most: int) -> Stretch:
    """The occurrences from *first*, which is one, to *until*: that one at least, *at_most* (≥ 1)
    at most. However many they are, they are reckoned, not walked over, but for those near a change
    of the clock, and those that *at_most* cuts off.

    Raises:
        InvalidInputError: The schedule cannot be read.
    """
    _, end = _bounds(schedule.start_at, schedule.end_at, schedule.timezone)
    until = max(first, until if end is None else min(until, end))
    if schedule.type is ScheduleType.INTERVAL:
        period = parse_duration(_text(schedule), "schedule")
        count = min((until - first) // period + 1, at_most)
        last = first + (count - 1) * period
        return Stretch(first, last, count, last - period if count > 1 else None)
    if schedule.type is ScheduleType.CRON:
        # Cron names minutes: thousands of jobs share one expression, and so one answer.
        until = max(first, until.replace(second=0, microsecond=0))
        return _cron_stretch(
            _text(schedule), schedule.timezone, schedule.dst, first, until, at_most
        )
    return _counted(occurrences(schedule, first - _MOMENT), first, until, at_most)


@lru_cache(maxsize=4096)
def _cron_stretch(
    text: str, timezone: str, dst: Dst, first: datetime, until: datetime, at_most: int
) -> Stretch:
    after = first - _MOMENT
    schedule = Schedule(ScheduleType.CRON, text, timezone, after, dst=dst)
    count = max(_cron_count(schedule, after, until), 1)
    if count > at_most:
        return _counted(_cron(schedule, after), first, until, at_most)
    latest: deque[datetime] = deque()
    for near in _LAST_TWO_WITHIN:
        since = max(after, until - near)
        latest = deque((each.at for each in _up_to(schedule, since, until)), maxlen=2)
        if len(latest) > 1 or since == after:
            break
    return Stretch(first, max(latest, default=first), count, latest[0] if count > 1 else None)


def _cron_count(schedule: Schedule, after: datetime, until: datetime) -> int:
    """How many occurrences of a CRON lie in (*after*, *until*]. Far from a change of the clock they
    are what its expression names in a day, day by day; near one they are walked over.
    """
    cron, local = read_cron(_text(schedule)), zone(schedule.timezone)
    count, low = 0, after
    for change in [*changes(schedule.timezone, after - _NEAR, until), None]:
        quiet_until = until if change is None else min(max(change.at - _MOMENT, low), until)
        if quiet_until > low:
            ahead = offset(low + _MOMENT, local)
            count += cron.count(wall(low + _MOMENT, ahead), wall(quiet_until, ahead))
        low = quiet_until
        if change is not None:
            # What a change skips comes at it, what it repeats not long after.
            walked_until = max(min(change.at + _NEAR, until), low)
            count += sum(1 for _ in _up_to(schedule, low, walked_until))
            low = walked_until
    return count


def _up_to(schedule: Schedule, after: datetime, until: datetime) -> Iterator[Occurrence]:
    """The occurrences of a CRON in (*after*, *until*]."""
    return takewhile(lambda each: each.at <= until, _cron(schedule, after))


def _counted(
    found: Iterator[Occurrence], first: datetime, until: datetime, at_most: int
) -> Stretch:
    count, last, before_last = 0, first, None
    for each in islice(found, at_most):
        if each.at > until:
            break
        count, last, before_last = count + 1, each.at, last if count else None
    return Stretch(first, last, max(count, 1), before_last)


def jitter(key: str, occurrence: datetime, width: timedelta) -> timedelta:
    """How much later than *occurrence* its run is due: whole milliseconds, 0 ≤ d < *width*.

    A hash: the same for the same *key* (the job's `uid`) and occurrence, whoever computes it.
    """
    return spread(f"{key}\x1f{to_ms(occurrence)}", width)


def spread(seed: str, width: timedelta) -> timedelta:
    """A duration by the hash of *seed*: whole milliseconds, 0 ≤ d < *width*, or 0 if that is 0."""
    steps = width // _MOMENT
    if steps <= 0:
        return timedelta()
    digest = hashlib.blake2s(seed.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % steps * _MOMENT


def check(schedule: Schedule) -> datetime | None:
    """The first occurrence of a schedule that is about to be stored; None for MANUAL only.

    Raises:
        InvalidInputError: It cannot be read, or never fires after `effective_from`.
    """
    start, end = _bounds(schedule.start_at, schedule.end_at, schedule.timezone)
    if start is not None and end is not None and end < start:
        raise InvalidInputError(
            "endAt",
            schedule.end_at,
            f"before startAt, {isoformat(start)}",
            f"Give a later one. For example `{isoformat(start + timedelta(days=1))}`.",
        )
    first = next_instant(schedule, schedule.effective_from)
    if first is None and schedule.type is not ScheduleType.MANUAL:
        raise _never(schedule, start, end)
    return first


def _never(schedule: Schedule, start: datetime | None, end: datetime | None) -> InvalidInputError:
    """Why *schedule* has no occurrence."""
    since = isoformat(schedule.effective_from)
    if end is not None and end <= schedule.effective_from:
        later = isoformat(min(schedule.effective_from + timedelta(days=1), HORIZON - _MOMENT))
        return InvalidInputError(
            "endAt",
            schedule.end_at,
            f"not after {since}, so nothing fires",
            f"Give a later one. For example `{later}`.",
        )
    unended = Schedule(
        schedule.type,
        schedule.expression,
        schedule.timezone,
        schedule.effective_from,
        start_at=schedule.start_at,
        dst=schedule.dst,
    )
    first = next_instant(unended, schedule.effective_from)
    if first is not None:
        return InvalidInputError(
            "endAt",
            schedule.end_at,
            f"before the first occurrence, {isoformat(first)}",
            f"Give that or a later one. For example `{isoformat(first)}`.",
        )
    if schedule.type is ScheduleType.ONCE and start is not None:
        return InvalidInputError(
            "schedule",
            schedule.expression,
            f"never fires after {since} and from startAt, {isoformat(start)}, on",
            "Leave startAt out, or name a later instant. For example"
            f" `{isoformat(max(start, schedule.effective_from) + timedelta(days=1))}`.",
        )
    tomorrow = isoformat(schedule.effective_from + timedelta(days=1))
    example = {
        ScheduleType.ONCE: tomorrow,
        ScheduleType.DATES: f'["{tomorrow}"]',
    }.get(schedule.type, EXAMPLES[schedule.type])
    return InvalidInputError(
        "schedule",
        schedule.expression,
        f"never fires after {since} and before {HORIZON.year}",
        f"Name an instant in the future. For example `{example}`.",
    )


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
            "Write PT5S, PT1H30M or P7D. For example `PT10M`.",
        )
    return duration


@dataclass(frozen=True, slots=True)
class _Span:
    """Occurrences o with `after` < o ≤ `until`; none at all without `after`."""

    after: datetime | None
    until: datetime


def _span(schedule: Schedule, after: datetime) -> _Span:
    start, end = _bounds(schedule.start_at, schedule.end_at, schedule.timezone)
    after = max(after, schedule.effective_from, FIRST - _MOMENT)
    if start is not None:
        after = max(after, start - _MOMENT)
    until = HORIZON - _MOMENT if end is None else end
    return _Span(cut(after) if after < until else None, until)


@lru_cache(maxsize=4096)
def _bounds(
    start_at: str | None, end_at: str | None, timezone: str
) -> tuple[datetime | None, datetime | None]:
    zone(timezone)
    return (
        None if start_at is None else read_instant(start_at, timezone, "startAt"),
        None if end_at is None else read_instant(end_at, timezone, "endAt"),
    )


def read_instant(
    text: str, timezone: str, field: str, *, whose: str = "of the timezone"
) -> datetime:
    """The instant that *text* (ISO 8601) names, in UTC; without an offset it is of *timezone*, and
    the first time round if it comes twice. *whose*: what an error says of the zone.

    Raises:
        InvalidInputError: It names none, or the zone is unknown. Told as the value of *field*.
    """
    named = _named(text, field, whose)
    if named.tzinfo is not None:
        return named
    near = named.replace(tzinfo=UTC) - _NEAR
    return next(_walk(_walls((named,)), timezone, Dst.ONCE, near)).at


def _named(text: str, field: str, whose: str = "of the timezone") -> datetime:
    """*text* as an instant in UTC, or naive where it has no offset; cut to milliseconds."""
    try:
        if not _INSTANT.fullmatch(text):
            raise ValueError("another form")
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            field,
            text,
            "not an ISO 8601 instant",
            f"Without an offset it is {whose}. For example `2030-05-24T10:00:00Z`.",
        ) from error
    # Both ends are a little inside, so that no zone's offset leads out.
    room = timedelta(days=1)
    earliest, end = FIRST + room, HORIZON - room
    if not earliest <= at.replace(tzinfo=UTC) < end:
        raise InvalidInputError(
            field,
            text,
            f"not from {earliest.date()} on and before {end.date()}",
            "For example `2030-05-24T10:00:00Z`.",
        )
    if at.tzinfo is None:
        return at.replace(microsecond=at.microsecond // 1000 * 1000)
    return cut(at)


# Each type's occurrences strictly after an instant


def _once(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    return _of_dates((_text(schedule),), schedule.timezone, Dst.ONCE, after, ("schedule",))


def _dates(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    texts = schedule.expression
    if not isinstance(texts, tuple) or not 1 <= len(texts) <= MAX_DATES:
        raise InvalidInputError(
            "schedule",
            texts,
            f"not a list of 1 to {MAX_DATES} instants",
            'For example `["2030-05-24T10:00:00Z"]`.',
        )
    fields = tuple(f"schedule.{index}" for index in range(len(texts)))
    return _of_dates(texts, schedule.timezone, schedule.dst, after, fields)


def _of_dates(
    texts: tuple[str, ...], timezone: str, dst: Dst, after: datetime, fields: tuple[str, ...]
) -> Iterator[Occurrence]:
    instants, walls = _sorted_dates(texts, fields)
    local = zone(timezone)
    named = (Occurrence(at, _shown(at, local)) for at in instants if at > after)
    last = None
    for each in merge(
        _walk(_walls(walls), timezone, dst, after), named, key=lambda found: found.at
    ):
        if each.at != last:
            yield each
        last = each.at


@lru_cache(maxsize=256)
def _sorted_dates(
    texts: tuple[str, ...], fields: tuple[str, ...]
) -> tuple[tuple[datetime, ...], tuple[datetime, ...]]:
    """Instants, and wall-clock times; each ascending."""
    named = {_named(text, field) for text, field in zip(texts, fields, strict=True)}
    return (
        tuple(sorted(at for at in named if at.tzinfo is not None)),
        tuple(sorted(at for at in named if at.tzinfo is None)),
    )


def _delay(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    at = cut(schedule.effective_from) + parse_duration(_text(schedule), "schedule")
    if at > after:
        yield Occurrence(at, _shown(at, zone(schedule.timezone)))


def _interval(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    period = parse_duration(_text(schedule), "schedule")
    if period < MIN_INTERVAL:
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            "shorter than a second",
            "Give PT1S or more. For example `PT10S`.",
        )
    start, _ = _bounds(schedule.start_at, None, schedule.timezone)
    at = anchor = cut(schedule.effective_from) if start is None else start
    if at <= after:
        at = anchor + ((after - anchor) // period + 1) * period
    local = zone(schedule.timezone)
    while True:  # the caller ends it, at `HORIZON` or before
        yield Occurrence(at, _shown(at, local))
        at += period


def _cron(schedule: Schedule, after: datetime) -> Iterator[Occurrence]:
    cron = read_cron(_text(schedule))
    return _walk(cron.next_wall, schedule.timezone, None if cron.elapsed else schedule.dst, after)


@lru_cache(maxsize=16384)
def _next_cron(text: str, timezone: str, dst: Dst, after: datetime) -> datetime | None:
    """Thousands of jobs share one expression and instant: the answer is kept."""
    found = next(_cron(Schedule(ScheduleType.CRON, text, timezone, after, dst=dst), after), None)
    return None if found is None else found.at


def _manual(_schedule: Schedule, _after: datetime) -> Iterator[Occurrence]:
    return iter(())


_SOURCES: dict[ScheduleType, Callable[[Schedule, datetime], Iterator[Occurrence]]] = {
    ScheduleType.ONCE: _once,
    ScheduleType.DELAY: _delay,
    ScheduleType.CRON: _cron,
    ScheduleType.INTERVAL: _interval,
    ScheduleType.DATES: _dates,
    ScheduleType.MANUAL: _manual,
}


def _text(schedule: Schedule) -> str:
    if not isinstance(schedule.expression, str):
        raise InvalidInputError(
            "schedule",
            schedule.expression,
            f"not a text, as {schedule.type} needs",
            f"For example `{EXAMPLES[schedule.type]}`.",
        )
    return schedule.expression


# From the wall clock to instants

NextWall = Callable[[datetime], datetime | None]
"""The first wall-clock time at or after a given one, both naive; None if there is none."""


def _walls(times: tuple[datetime, ...]) -> NextWall:
    def next_wall(at: datetime) -> datetime | None:
        index = bisect_left(times, at)
        return times[index] if index < len(times) else None

    return next_wall


def _walk(
    next_wall: NextWall, timezone: str, dst: Dst | None, after: datetime
) -> Iterator[Occurrence]:
    """The occurrences after the instant *after* of the times that *next_wall* tells. Without *dst*
    they go by elapsed time.

    Goes from one change of the clock to the next: in between, the offset is one.
    """
    local = zone(timezone)
    at, ahead = after, offset(after, local)
    low = wall(at, ahead) + _MOMENT  # times before it are done
    if dst is Dst.ONCE:
        # What was shown before a change back is not shown again.
        low = max([low, *(c.wall_before for c in changes(timezone, at - _NEAR, at))])
    while True:
        time = next_wall(low)
        found = HORIZON if time is None else time.replace(tzinfo=UTC) - ahead
        change = next(changes(timezone, at, min(found, HORIZON)), None)
        if change is None:
            if time is None or found >= HORIZON:
                return
            note = "" if dst is None else _round(time, found.astimezone(local), dst)
            yield Occurrence(found, _shown(found, local), note)
            at, low = found, time + _MOMENT
            continue
        at, ahead = change.at, change.after
        skipped = [] if dst is None else _between(next_wall, low, change.wall_after)
        # In ONCE, what was shown before a change back is done.
        low = max(low, change.wall_after) if dst is Dst.ONCE else change.wall_after
        if skipped:
            joined = next_wall(low) == low
            note = _skipped(skipped, change.wall_after, joined=joined)
            yield Occurrence(at, _shown(at, local), note)
            low += _MOMENT * joined


def _shown(at: datetime, local: ZoneInfo) -> datetime:
    """*at* as the clock shows it. With a fixed offset: one of a zone, in an hour that comes twice,
    equals no instant of another zone, itself in UTC included (PEP 495).
    """
    return at.astimezone(fixed(offset(at, local)))


def _between(next_wall: NextWall, low: datetime, high: datetime) -> list[datetime]:
    found: list[datetime] = []
    while (time := next_wall(low)) is not None and time < high:
        found.append(time)
        low = time + _MOMENT
    return found


def _round(time: datetime, shown: datetime, dst: Dst) -> str:
    """What is to be said of *time* if the clock shows it twice."""
    if not shown.fold and shown.replace(fold=1).utcoffset() == shown.utcoffset():
        return ""
    if dst is Dst.ONCE:
        return f"{_spoken(time)} comes twice: fires the first time round only"
    return f"{_spoken(time)} comes twice: the {'second' if shown.fold else 'first'} time round"


def _skipped(times: list[datetime], shown: datetime, *, joined: bool) -> str:
    named = [_spoken(time) for time in times]
    if len(named) > _SPOKEN:
        named = [named[0], "…", f"{named[-1]} ({len(named)} times)"]
    verb = "is" if len(times) == 1 else "are"
    text = f"{', '.join(named)} {verb} skipped by the clock: fires once, at the change"
    return f"{text}, with {_spoken(shown)}" if joined else text


def _spoken(time: datetime) -> str:
    return time.isoformat(timespec="seconds" if time.second else "minutes")
