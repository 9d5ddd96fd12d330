"""Wall-clock times as instants, across the clock changes of a timezone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from datetime import timezone as fixed
from zoneinfo import ZoneInfo

from nextfire.domain.instants import MOMENT
from nextfire.domain.schedule import Dst, Occurrence
from nextfire.domain.zones import HORIZON, changes, offset, wall, zone

MAX_CLOCK_CHANGE = timedelta(days=2)
"""More than any clock change: none exceeds a day."""
_SPOKEN = 3


NextWall = Callable[[datetime], datetime | None]
"""Returns the first wall-clock time at or after the given one, both naive; None after the last."""


def next_of(times: tuple[datetime, ...]) -> NextWall:
    def next_wall(at: datetime) -> datetime | None:
        index = bisect_left(times, at)
        return times[index] if index < len(times) else None

    return next_wall


def at_wall_times(
    next_wall: NextWall, timezone: str, dst: Dst | None, after: datetime
) -> Iterator[Occurrence]:
    """The occurrences after the instant *after* at the wall-clock times of *next_wall*. If *dst* is
    None, they follow elapsed time.

    Proceeds from one clock change to the next; in between, the offset is constant.
    """
    local = zone(timezone)
    at, ahead = after, offset(after, local)
    low = wall(at, ahead) + MOMENT  # times before it are done
    if dst is Dst.ONCE:
        # Times that the clock showed before it was set back do not fire again.
        low = max([low, *(c.wall_before for c in changes(timezone, at - MAX_CLOCK_CHANGE, at))])
    while True:
        time = next_wall(low)
        # After the last time, only a change that sets the clock back to it matters.
        found = at + MAX_CLOCK_CHANGE if time is None else time.replace(tzinfo=UTC) - ahead
        change = next(changes(timezone, at, min(found, HORIZON)), None)
        if change is None:
            if time is None or found >= HORIZON:
                return
            note = "" if dst is None else _round(time, found.astimezone(local), dst)
            yield Occurrence(found, in_fixed_offset(found, local), note)
            at, low = found, time + MOMENT
            continue
        at, ahead = change.at, change.after
        skipped = [] if dst is None else _between(next_wall, low, change.wall_after)
        # With ONCE, times that the clock showed before it was set back are done.
        low = max(low, change.wall_after) if dst is Dst.ONCE else change.wall_after
        if skipped:
            joined = next_wall(low) == low
            note = _skipped(skipped, change.wall_after, joined=joined)
            yield Occurrence(at, in_fixed_offset(at, local), note)
            low += MOMENT * joined


def first_at(time: datetime, timezone: str) -> datetime:
    """The instant of the wall-clock time *time*, naive: the first one if it occurs twice; that of
    the clock change if it is skipped.
    """
    near = time.replace(tzinfo=UTC) - MAX_CLOCK_CHANGE
    return next(at_wall_times(next_of((time,)), timezone, Dst.ONCE, near)).at


def in_fixed_offset(at: datetime, local: ZoneInfo) -> datetime:
    """*at* in local time, with a fixed offset. In a repeated hour, a datetime with a zone never
    equals the same instant in another zone, not even in UTC (PEP 495).
    """
    return at.astimezone(fixed(offset(at, local)))


def _between(next_wall: NextWall, low: datetime, high: datetime) -> list[datetime]:
    found: list[datetime] = []
    while (time := next_wall(low)) is not None and time < high:
        found.append(time)
        low = time + MOMENT
    return found


def _round(time: datetime, shown: datetime, dst: Dst) -> str:
    """The note for *time* if it occurs twice; else empty."""
    if not shown.fold and shown.replace(fold=1).utcoffset() == shown.utcoffset():
        return ""
    if dst is Dst.ONCE:
        return f"{_spoken(time)} occurs twice: fires the first time only"
    return f"{_spoken(time)} occurs twice: the {'second' if shown.fold else 'first'} time"


def _skipped(times: list[datetime], shown: datetime, *, joined: bool) -> str:
    named = [_spoken(time) for time in times]
    if len(named) > _SPOKEN:
        named = [named[0], "…", f"{named[-1]} ({len(named)} times)"]
    verb = "is" if len(times) == 1 else "are"
    text = f"{', '.join(named)} {verb} skipped by the clock: fires once, at the change"
    return f"{text}, with {_spoken(shown)}" if joined else text


def _spoken(time: datetime) -> str:
    return time.isoformat(timespec="seconds" if time.second else "minutes")
