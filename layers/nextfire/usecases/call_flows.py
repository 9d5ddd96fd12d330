"""Limits of endpoints: which runs may call now.

The costs, in requests to the store:

| path | consistent reads | writes |
|---|---|---|
| run on an endpoint without a limit | 0 | 0 |
| run that starts or waits | 0, after a change by another process 1 | 1, and 1 per conflict |
| run that would wait for over an hour | 1 | 0 |
| end of a call, with a limit of calls at the same time | 0, after such a change 1 | 1 |

A write is one unit; with 40 calls at the same time two, with 100 three. Processes that write at the
same time conflict; after `_TRIES` conflicts a run waits for some seconds without a write.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nextfire.domain import call_flow
from nextfire.domain.call_flow import Caller, CallFlow
from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import EndpointKey
from nextfire.domain.instants import cut
from nextfire.domain.jitter import spread
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.targets import Hold

_TRIES = 6
_AFTER_CONFLICTS = timedelta(seconds=10)
_MAX_KNOWN = 1000


@dataclass(slots=True)
class _Known:
    """The flow of an endpoint as this process read or wrote it last; None: not read."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    flow: CallFlow | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    since: datetime


class CallFlows:
    """The flows of calls in one process; thread-safe.

    *on_error*: called with an error of the store. Such errors delay no run: while the store does
    not answer, limits are not kept.
    """

    def __init__(
        self,
        store: EndpointStore,
        clock: Clock,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_error = on_error
        self._known: dict[EndpointKey, _Known] = {}
        self._places: dict[tuple[EndpointKey, str], _Place] = {}
        self._lock = threading.Lock()

    def enter(
        self,
        key: EndpointKey,
        limit: CallLimit,
        run: str,
        *,
        until: datetime,
        first: bool,
    ) -> Hold | None:
        """Return until when *run* must not call *key*; None if it may: then call `leave` after it.

        Args:
            key: The endpoint.
            limit: Its limit.
            run: Identifies the run.
            until: When the call has ended, even if its executor dies.
            first: It is the first time that the run is here.
        """
        caller = Caller(secrets.token_hex(4), until, first)
        known = self._of(key)
        now = self._clock.now()
        with known.lock:
            for _ in range(_TRIES):
                now = self._clock.now()
                flow = self._read(key, known)
                if flow is None:
                    return None
                changed, at = call_flow.enter(flow, limit, caller, now)
                written = changed.version == flow.version or self._write(known, flow, changed)
                if written is None:
                    return None
                if written:
                    break
            else:
                at = cut(now + _AFTER_CONFLICTS / 2 + spread(caller.name, _AFTER_CONFLICTS / 2))
        if at is not None:
            return Hold(at, f"endpoint {key.destination} has a limit: {_text(limit)}")
        if limit.parallel is not None:
            with self._lock:
                self._places[key, run] = _Place(caller.name, now)
        return None

    def leave(self, key: EndpointKey, run: str) -> None:
        """Give back the place of *run*, if this process took one. Never raises: a place that was
        not given back ends at its `until`.
        """
        with self._lock:
            place = self._places.pop((key, run), None)
        if place is None:
            return
        known = self._of(key)
        with known.lock:
            for _ in range(_TRIES):
                flow = self._read(key, known)
                if flow is None:
                    return
                changed = call_flow.leave(flow, place.name, self._clock.now() - place.since)
                if changed is flow or self._write(known, flow, changed) is not False:
                    return

    def _of(self, key: EndpointKey) -> _Known:
        with self._lock:
            if len(self._known) >= _MAX_KNOWN and key not in self._known:
                self._known.clear()
            return self._known.setdefault(key, _Known())

    def _read(self, key: EndpointKey, known: _Known) -> CallFlow | None:
        """The flow, as known or from the store; None if the store does not answer."""
        if known.flow is None:
            try:
                known.flow = self._store.flow(key) or CallFlow(key)
            except Exception as error:  # noqa: BLE001 — no failure of the store delays a run
                self._on_error(error)
        return known.flow

    def _write(self, known: _Known, was: CallFlow, to: CallFlow) -> bool | None:
        """Store *to*. False: another process was first; None: the store did not answer."""
        try:
            written = self._store.replace_flow(was, to)
        except Exception as error:  # noqa: BLE001 — no failure of the store delays a run
            self._on_error(error)
            known.flow = None
            return None
        known.flow = to if written else None
        return written


def _text(limit: CallLimit) -> str:
    parts = []
    if limit.per_minute is not None:
        parts.append(f"{limit.per_minute} calls per minute")
    if limit.parallel is not None:
        parts.append(f"{limit.parallel} at the same time")
    return ", ".join(parts)
