"""Limits of the calls of an endpoint: which runs may call now, and when the others come.

Each endpoint with a limit has a flow, which all executors share. Runs that must wait join its line:
each comes one step after the run before it. A step is what the rate, or the usual duration of a
call with all places taken, allows. A run that comes from the line needs a place and a free moment
like all others; if it gets none, it joins the end of the line.

All functions are pure. The clock may go backwards: no stored instant delays a run for longer than
the longest wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nextfire.domain.call_limit import BURST, CallLimit
from nextfire.domain.endpoints import EndpointKey
from nextfire.domain.instants import CLOCKS_DIFFER, cut
from nextfire.domain.jitter import spread

WAIT_AT_LEAST = timedelta(seconds=1)
WAIT_AT_MOST = timedelta(hours=1)
"""A run that would wait longer comes in the second half of this wait, and joins the line again."""
_MINUTE = timedelta(minutes=1)
_AT_FIRST = timedelta(seconds=1)
_LONGEST_PLACE = timedelta(days=1)
_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class CallFlow:
    """The calls of an endpoint. One that is not stored has version 0.

    - `free_at`: when the calls that started would be spread at the rate; later starts move it.
    - `line_at`: when the last run of the line comes.
    - `places`: the calls in progress, and when each is given up if its executor died.
    - `usual`: the usual duration of a call.
    - `version`: increases with each change; a conditional write compares it.
    """

    key: EndpointKey
    free_at: datetime | None = None
    line_at: datetime | None = None
    places: Mapping[str, datetime] = field(default_factory=dict)
    usual: timedelta = _AT_FIRST
    version: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """A run that wants to call. `name`: of its place; `until`: when its place is given up at the
    latest; `first`: it has not been in the line yet.
    """

    name: str
    until: datetime
    first: bool


def enter(
    flow: CallFlow, limit: CallLimit, caller: Caller, now: datetime
) -> tuple[CallFlow, datetime | None]:
    """Decide whether *caller* may call at *now*.

    Returns:
        *flow* as it must be stored first, if its version is a new one; and None if the caller may
        call, or when it comes again.
    """
    interval = _MINUTE / limit.per_minute if limit.per_minute else timedelta()
    places = {name: end for name, end in flow.places.items() if now < end <= now + _LONGEST_PLACE}
    free_at = min(max(flow.free_at or now, now), now + BURST + interval)
    line_at = flow.line_at or now
    if not now < line_at <= now + WAIT_AT_MOST + CLOCKS_DIFFER:
        line_at = now
    has_place = limit.parallel is None or len(places) < limit.parallel
    if has_place and free_at <= now + BURST and not (caller.first and line_at > now):
        if limit.parallel is not None:
            places[caller.name] = cut(caller.until)
        return _changed(flow, free_at=free_at + interval, places=places), None
    step = max(interval, flow.usual / limit.parallel if limit.parallel else interval)
    at = max(line_at, now + WAIT_AT_LEAST, free_at - BURST) + step
    if at <= now + WAIT_AT_MOST:
        return _changed(flow, line_at=at, places=places), cut(at)
    late = spread(f"{caller.name}\x1f{now}", WAIT_AT_MOST / 2)
    return flow, cut(now + WAIT_AT_MOST / 2 + late)


def leave(flow: CallFlow, name: str, took: timedelta) -> CallFlow:
    """Return *flow* after the call with the place *name* ended; unchanged if it has no place.
    *took*: its duration.
    """
    if name not in flow.places:
        return flow
    places = {each: end for each, end in flow.places.items() if each != name}
    usual = flow.usual * (1 - _WEIGHT) + max(took, timedelta()) * _WEIGHT
    return _changed(flow, places=places, usual=usual)


def _changed(flow: CallFlow, **fields: object) -> CallFlow:
    return replace(flow, version=flow.version + 1, **fields)  # type: ignore[arg-type]
