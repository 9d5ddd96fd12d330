"""Limits of the calls of an endpoint: which runs may call now, and when the others ask again.

Each endpoint with a limit has a flow, which all executors share. A call needs its turn in the rate
and, if calls at the same time are limited, a place: one for each call in progress. A run that has
to wait joins the end of a line and asks again one step after the run before it; if it must still
wait, it joins the end again. A step is the longer of two times: between two calls of the rate, and
between two ends of calls with all places taken, at most 30 s, since calls may have become quicker.
New runs wait behind the line, unless more than one place is free. A change of the limit ends the
line; runs that already wait keep their times.

All functions are pure. The clock may go backwards: no stored instant delays a run for longer than
the longest wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.call_limit import BURST, MAX_PARALLEL, NO_LIMIT, CallLimit
from nextfire.domain.endpoints import EndpointKey
from nextfire.domain.instants import CLOCKS_DIFFER, cut
from nextfire.domain.jitter import spread

WAIT_AT_LEAST = timedelta(seconds=1)
WAIT_AT_MOST = timedelta(hours=1)
"""A run that would wait longer asks in the second half of this time, and joins the line again."""
_MINUTE = timedelta(minutes=1)
_AT_FIRST = timedelta(seconds=1)
_LONGEST_PLACE = timedelta(days=1)
_LONGEST_STEP = timedelta(seconds=30)
"""Of a line for places. Without it, calls that hang would slow the line for hours afterwards."""
_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class CallFlow:
    """The calls of an endpoint. One that is not stored has version 0.

    - `free_at`: when the calls that started would be spread at the rate; later starts move it.
    - `line_at`: when the last run of the line asks again.
    - `places`: the calls in progress, and when each is given up if its executor died.
    - `usual`: the usual duration of a call.
    - `limit`: the limit that `line_at` and `usual` are for.
    - `version`: increases with each change; a conditional write compares it.
    """

    key: EndpointKey
    free_at: datetime | None = None
    line_at: datetime | None = None
    places: Mapping[str, datetime] = field(default_factory=dict)
    usual: timedelta = _AT_FIRST
    limit: CallLimit = NO_LIMIT
    version: int = 0


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """A run that wants to call. `name`: of its place; `until`: when its place is given up at the
    latest; `first`: it has not been in the line yet.
    """

    name: str
    until: datetime
    first: bool


def enter(
    flow: CallFlow, limit: CallLimit, caller: WaitingRun, now: datetime
) -> tuple[CallFlow, datetime | None]:
    """Decide whether *caller* may call at *now*.

    Returns:
        *flow* as it must be stored first, if its version is a new one; and None if the caller may
        call, else when it asks again.
    """
    interval = _MINUTE / limit.per_minute if limit.per_minute else timedelta()
    places = {name: end for name, end in flow.places.items() if now < end <= now + _LONGEST_PLACE}
    current = flow
    if flow.limit != limit:
        current = replace(flow, limit=limit, free_at=None, line_at=None, usual=_AT_FIRST)
    free_at = min(max(current.free_at or now, now), now + BURST + interval)
    line_at = current.line_at or now
    if not now < line_at <= now + WAIT_AT_MOST + CLOCKS_DIFFER:
        line_at = now
    free = MAX_PARALLEL + 1 if limit.parallel is None else limit.parallel - len(places)
    overtakes = limit.parallel is not None and free > 1 and free_at <= now
    is_next = not caller.first or line_at <= now or overtakes
    changed = _changed(current, places=places)
    if free > 0 and free_at <= now + BURST and is_next:
        if limit.parallel is not None:
            places[caller.name] = cut(caller.until)
        kept = line_at if line_at > now else None
        return replace(changed, free_at=free_at + interval, line_at=kept), None
    step = interval
    if limit.parallel is not None:
        step = max(interval, min(current.usual / limit.parallel, _LONGEST_STEP))
    at = max(line_at, now + WAIT_AT_LEAST, free_at - BURST) + step
    if at <= now + WAIT_AT_MOST:
        return replace(changed, line_at=at), cut(at)
    late = spread(f"{caller.name}\x1f{now}", WAIT_AT_MOST / 2)
    return flow, cut(now + WAIT_AT_MOST / 2 + late)


def leave(flow: CallFlow, ended: Mapping[str, timedelta]) -> CallFlow:
    """Return *flow* after calls ended; unchanged if they have no place. *ended*: the names of their
    places, and their durations.
    """
    places = {each: end for each, end in flow.places.items() if each not in ended}
    if len(places) == len(flow.places):
        return flow
    usual = flow.usual
    for name, took in ended.items():
        if name in flow.places:
            usual = usual * (1 - _WEIGHT) + max(took, timedelta()) * _WEIGHT
    return _changed(flow, places=places, usual=usual)


def _changed(flow: CallFlow, **fields: object) -> CallFlow:
    return replace(flow, version=flow.version + 1, **fields)  # type: ignore[arg-type]
