"""Endpoints: the state of each destination of HTTP callbacks, and what follows from it for runs.

    CLOSED ──5 consecutive failures──▶ OPEN ──a response──▶ CLOSED
    any state ──a user pauses──▶ PAUSED ──a user resumes──▶ CLOSED

- CLOSED: runs start. After a 429 with Retry-After they wait until `not_before`.
- OPEN: runs wait, except one run per interval, the probe.
- PAUSED: runs wait, without probes, and no result changes the state.

All functions are pure. The clock may go backwards: no instant further ahead than the longest
interval delays a run.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple

from nextfire.dataclass import dataclass, replace
from nextfire.domain.call_limit import NO_LIMIT, CallLimit
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import CLOCKS_DIFFER, cut, isoformat, to_ms
from nextfire.domain.jitter import spread
from nextfire.domain.ports.targets import Hold

Outcome = Literal["ok", "throttled", "down"]
"""Result of a call: a response, a response 429, or neither a response nor a usable one."""

OPENS_AFTER = 5
"""Number of consecutive failures that open an endpoint."""
PROBE_AFTER = timedelta(seconds=30)
"""Interval before the first probe. It doubles with each probe."""
PROBE_AT_LEAST_EVERY = timedelta(minutes=5)
WAIT_AT_FIRST = timedelta(seconds=120)
"""Runs wait between half of this duration and all of it. It grows with the age of the outage."""
WAIT_AT_MOST = timedelta(minutes=15)
_LATER_WAITS, LONGEST_WAIT = 1 / 8, timedelta(minutes=45)
"""In outages of more than two hours, runs wait for this part of the outage's age, within bounds:
each look costs as much as a run.
"""
SPREAD_OF_RETRY_AFTER = timedelta(seconds=10)
_LONGEST_SPREAD = timedelta(minutes=2)
"""Runs that waited for a Retry-After start within a fifth of it, between these two."""
RETRY_AFTER_AT_MOST = timedelta(hours=1)
"""A longer Retry-After delays only the run that received it."""
_SAME_RETRY_AFTER = timedelta(seconds=5)

DESTINATION = re.compile(r"(?:[a-z0-9_](?:[a-z0-9._-]{0,252})|\[[0-9a-f:.]{2,45}\]):[0-9]{1,5}")
_HTTPS = 443
_MAX_PORT = 65535


class EndpointKey(NamedTuple):
    """Identifies an endpoint. `destination`: ``host:port``, see `parse_destination`."""

    pool: str
    tenant: str
    destination: str


class EndpointState(StrEnum):
    """State of an endpoint."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    PAUSED = "PAUSED"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint. One that is not stored is CLOSED and has version 0.

    - `failures`: consecutive failures while CLOSED.
    - `opened_at`: start of the outage; `probe_at`: when the next probe may start; `failed_probes`:
      probes since then. A probe counts as failed until a response arrives. Only if OPEN.
    - `not_before`: from a Retry-After.
    - `pause_reason`, `paused_at`: only if PAUSED.
    - `limit`: set by users; see `call_flow`.
    - `version`: increases with each change; a conditional write compares it.
    """

    key: EndpointKey
    state: EndpointState = EndpointState.CLOSED
    failures: int = 0
    opened_at: datetime | None = None
    probe_at: datetime | None = None
    failed_probes: int = 0
    not_before: datetime | None = None
    pause_reason: str | None = None
    paused_at: datetime | None = None
    limit: CallLimit = NO_LIMIT
    changed_at: datetime | None = None
    version: int = 0


def admit(endpoint: Endpoint, now: datetime, seed: str) -> Hold | Endpoint | None:
    """Decide whether a run may call *endpoint* at *now*. *seed*: identifies the run.

    Returns:
        None if it may; a Hold if it must wait; or *endpoint* as it must be stored first: the run is
        the probe if this conditional write succeeds. If not, see `hold`.
    """
    if endpoint.state is not EndpointState.OPEN:
        return hold(endpoint, now, seed)
    if _lies_ahead(endpoint.probe_at, now, PROBE_AT_LEAST_EVERY):
        return hold(endpoint, now, seed)
    probes = endpoint.failed_probes + 1
    probe_at = cut(now + _interval(probes))
    return _changed(endpoint, now, probe_at=probe_at, failed_probes=probes)


def given_back(endpoint: Endpoint, now: datetime) -> Endpoint:
    """Return *endpoint*, whose latest probe made no call: the next run is the probe."""
    return _changed(endpoint, now, probe_at=cut(now), failed_probes=endpoint.failed_probes - 1)


def hold(endpoint: Endpoint, now: datetime, seed: str) -> Hold | None:
    """Return how long a run that is not a probe waits; None if it may start."""
    match endpoint.state:
        case EndpointState.PAUSED:
            paused_at = endpoint.paused_at or now
            until = _waits(paused_at, now, now, seed)
            reason = f"{_name(endpoint)} is paused: {endpoint.pause_reason or 'by a user'}"
            return Hold(until, reason, paused_at)
        case EndpointState.OPEN:
            probe_at = min(endpoint.probe_at or now, now + PROBE_AT_LEAST_EVERY)
            opened_at = endpoint.opened_at or now
            until = _waits(opened_at, max(probe_at, now), now, seed)
            reason = f"{_name(endpoint)} is down since {isoformat(opened_at)}"
            return Hold(until, reason, opened_at)
    earliest = endpoint.not_before
    if earliest is None or not _lies_ahead(earliest, now, RETRY_AFTER_AT_MOST):
        return None
    waited = (earliest - (endpoint.changed_at or now)) / 5
    width = min(max(waited, SPREAD_OF_RETRY_AFTER), _LONGEST_SPREAD)
    until = earliest + spread(_mixed(seed, earliest), width)
    return Hold(cut(until), f"{_name(endpoint)} asked to wait until {isoformat(earliest)}")


def reported(
    endpoint: Endpoint, outcome: Outcome, now: datetime, retry_at: datetime | None = None
) -> Endpoint | None:
    """Return *endpoint* after a call with *outcome*; None if there is nothing to write.

    Args:
        endpoint: The endpoint.
        outcome: The result of the call. "throttled" is a response, so it closes an open endpoint.
        now: When the call ended.
        retry_at: With "throttled": the end of the Retry-After, if there was one.
    """
    if endpoint.state is EndpointState.PAUSED:
        return None
    if outcome == "down":
        return _failed(endpoint, now)
    not_before = _new_not_before(endpoint, now, retry_at) if outcome == "throttled" else None
    clean = endpoint.state is EndpointState.CLOSED and not endpoint.failures
    if clean and not_before is None:
        return None
    return _closed(endpoint, now, not_before=not_before or endpoint.not_before)


def _failed(endpoint: Endpoint, now: datetime) -> Endpoint | None:
    if endpoint.state is EndpointState.OPEN:
        return None  # the probe was counted when it started
    failures = endpoint.failures + 1
    if failures < OPENS_AFTER:
        return _changed(endpoint, now, failures=failures)
    return replace(
        _changed(endpoint, now, failures=failures),
        state=EndpointState.OPEN,
        opened_at=cut(now),
        probe_at=cut(now + PROBE_AFTER),
        failed_probes=0,
        not_before=None,
    )


def _new_not_before(
    endpoint: Endpoint, now: datetime, retry_at: datetime | None
) -> datetime | None:
    """The new `not_before`; None if the stored one is about the same or later."""
    if retry_at is None or retry_at <= now:
        return None
    wanted = cut(min(retry_at, now + RETRY_AFTER_AT_MOST))
    known = endpoint.not_before
    same = known is not None and known >= wanted - _SAME_RETRY_AFTER
    if same and _lies_ahead(known, now, RETRY_AFTER_AT_MOST):
        return None
    return wanted


def paused(endpoint: Endpoint, reason: str | None, now: datetime) -> Endpoint:
    """Return *endpoint*, paused at *now* for *reason*; unchanged if it is paused for it already."""
    if endpoint.state is EndpointState.PAUSED:
        if endpoint.pause_reason == reason:
            return endpoint
        return _changed(endpoint, now, pause_reason=reason)
    closed = _closed(endpoint, now)
    return replace(
        closed, state=EndpointState.PAUSED, pause_reason=reason, paused_at=closed.changed_at
    )


def resumed(endpoint: Endpoint, now: datetime) -> Endpoint:
    """Return *endpoint*, CLOSED; unchanged if it is CLOSED already. Resuming an OPEN endpoint
    closes it: runs call it again, without waiting for a probe.
    """
    if endpoint.state is EndpointState.CLOSED:
        return endpoint
    return _closed(endpoint, now)


def limited(endpoint: Endpoint, limit: CallLimit, now: datetime) -> Endpoint:
    """Return *endpoint* with *limit*; unchanged if it has it already."""
    return endpoint if endpoint.limit == limit else _changed(endpoint, now, limit=limit)


def _closed(endpoint: Endpoint, now: datetime, *, not_before: datetime | None = None) -> Endpoint:
    return Endpoint(
        endpoint.key,
        not_before=not_before,
        limit=endpoint.limit,
        changed_at=cut(now),
        version=endpoint.version + 1,
    )


def _changed(endpoint: Endpoint, now: datetime, **fields: object) -> Endpoint:
    changed = {"changed_at": cut(now), "version": endpoint.version + 1, **fields}
    return replace(endpoint, **changed)  # type: ignore[arg-type]


def _lies_ahead(at: datetime | None, now: datetime, longest: timedelta) -> bool:
    """Whether *at*, which some clock set to at most *longest* ahead, is still to come. One that is
    further ahead was set by a clock that went backwards since.
    """
    return at is not None and now < at <= now + longest + CLOCKS_DIFFER


def _interval(probes: int) -> timedelta:
    """The interval after the probe number *probes*."""
    return min(PROBE_AFTER * (1 << min(probes, 10)), PROBE_AT_LEAST_EVERY)


def _waits(since: datetime, earliest: datetime, now: datetime, seed: str) -> datetime:
    """When a run of an outage that began at *since* is dispatched again: between half of the wait
    and all of it after *earliest*. The run does not have the same place in each wait.
    """
    age = now - since
    wait = max(min(max(age, WAIT_AT_FIRST), WAIT_AT_MOST), min(age * _LATER_WAITS, LONGEST_WAIT))
    return cut(earliest + wait / 2 + spread(_mixed(seed, earliest), wait / 2))


def _mixed(seed: str, at: datetime) -> str:
    return f"{seed}\x1f{to_ms(at)}"


def _name(endpoint: Endpoint) -> str:
    return f"endpoint {endpoint.key.destination}"


def parse_destination(text: str, field: str = "destination") -> str:
    """Return the destination ``host:port`` of *text*: a host or ``host:port``, without a scheme.
    The host is in lower case; the default port is 443.

    Raises:
        InvalidInputError: *text* is not a host with or without a port.
    """
    found = text.lower().removesuffix(".")
    if not re.search(r":[0-9]+$", found) or found.endswith("]"):
        found = f"{found}:{_HTTPS}"
    host, _, port = found.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() else 0
    named = f"{host.removesuffix('.')}:{number}"
    if not 1 <= number <= _MAX_PORT or not DESTINATION.fullmatch(named):
        raise InvalidInputError(
            field,
            text,
            "not a host with an optional port",
            'Use HOST or HOST:PORT, for example "api.example.com" or "api.example.com:8443".',
        )
    return named
