"""Limits of endpoints: which runs may call now.

The costs, in requests to the store:

| path | consistent reads | writes |
|---|---|---|
| run on an endpoint without a limit | 0 | 0 |
| run that starts or waits | 0; 1 after a change by another process | 1, and 1 per conflict |
| run that would wait for over an hour | 1 | 0 |
| end of a call that has a place | 0; 1 after such a change | 1, and 1 per conflict |

Calls of a process that end at once share a write. A write takes one unit, two with 40 calls in
progress, three with 100. Processes that write at the same time conflict, wait for some milliseconds
and try again; after `_TRIES` conflicts a run waits for some seconds without a write. A call whose
end could not be written is taken out with the next write of its process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from random import Random, SystemRandom

from nextfire.dataclass import dataclass, field
from nextfire.domain import call_flow
from nextfire.domain.call_flow import CallFlow, WaitingRun
from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import EndpointKey
from nextfire.domain.errors import UndecodableError
from nextfire.domain.instants import cut
from nextfire.domain.jitter import spread
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.targets import Hold

_TRIES = 6
_AFTER_CONFLICTS = timedelta(seconds=10)
_AFTER_ERRORS = timedelta(seconds=20)
_FAILED_FOR = timedelta(seconds=5)
"""How long a process does not ask a store again that did not answer."""
_BACK_OFF_MS = 10
_MAX_KNOWN = 1000


@dataclass(slots=True)
class _Known:
    """The flow of an endpoint as this process read or wrote it last; None: not read. `ended`: calls
    whose places are still to be given back, with their durations. `failure`: why the flow could not
    be read or written at `failed_at`.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    flow: CallFlow | None = None
    ended: dict[str, timedelta] = field(default_factory=dict)
    failure: Exception | None = None
    failed_at: datetime | None = None

    def has_just_failed(self, now: datetime) -> bool:
        return self.failed_at is not None and timedelta() <= now - self.failed_at < _FAILED_FOR


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    since: datetime


class CallFlows:
    """The flows of calls in one process; thread-safe.

    *on_error*: called with an error of the store. While the store does not answer, runs of
    endpoints with a limit wait. A flow that does not decode limits nothing until it expires.
    *random*: names of callers, which must differ between processes, and waits after conflicts.
    """

    def __init__(
        self,
        store: EndpointStore,
        clock: Clock,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
        random: Random | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._random = random or SystemRandom()
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
            first: Whether the run asks for the first time.
        """
        caller = WaitingRun(f"{self._random.getrandbits(32):08x}", until, first)
        known = self._of(key)
        now = self._clock.now()
        with known.lock:
            for attempt in range(_TRIES):
                now = self._clock.now()
                flow = self._read(key, known, now)
                if flow is None:
                    return self._without_flow(key, known, caller, now)
                ended = self._ended(known)
                changed, at = call_flow.enter(call_flow.leave(flow, ended), limit, caller, now)
                if changed.version == flow.version:
                    break
                written = self._write(known, flow, changed, ended)
                if written is None:
                    return self._without_flow(key, known, caller, now)
                if written:
                    break
                self._back_off(attempt)
            else:
                at = _soon(now, caller, _AFTER_CONFLICTS)
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
        known = self._of(key)
        with self._lock:
            place = self._places.pop((key, run), None)
            if place is None:
                return
            known.ended[place.name] = self._clock.now() - place.since
        with known.lock:
            for attempt in range(_TRIES):
                ended = self._ended(known)
                flow = self._read(key, known, self._clock.now()) if place.name in ended else None
                if flow is None:
                    return
                changed = call_flow.leave(flow, ended)
                if changed is flow:
                    self._forget(known, ended)
                    return
                if self._write(known, flow, changed, ended) is not False:
                    return
                self._back_off(attempt)

    def _of(self, key: EndpointKey) -> _Known:
        with self._lock:
            if len(self._known) >= _MAX_KNOWN and key not in self._known:
                del self._known[next(iter(self._known))]
            return self._known.setdefault(key, _Known())

    def _ended(self, known: _Known) -> dict[str, timedelta]:
        with self._lock:
            return dict(known.ended)

    def _forget(self, known: _Known, ended: Iterable[str]) -> None:
        with self._lock:
            for name in ended:
                known.ended.pop(name, None)

    def _back_off(self, attempt: int) -> None:
        milliseconds = self._random.randrange(_BACK_OFF_MS << attempt)
        self._clock.sleep(timedelta(milliseconds=milliseconds))

    def _without_flow(
        self, key: EndpointKey, known: _Known, caller: WaitingRun, now: datetime
    ) -> Hold | None:
        """Decide without the flow: the store did not answer, or the flow does not decode."""
        if isinstance(known.failure, UndecodableError):
            return None
        at = _soon(now, caller, _AFTER_ERRORS)
        return Hold(at, f"endpoint {key.destination} has a limit, and its table does not answer")

    def _read(self, key: EndpointKey, known: _Known, now: datetime) -> CallFlow | None:
        """The flow, as known or from the store; None if it cannot be read."""
        if known.flow is None and not known.has_just_failed(now):
            try:
                known.flow = self._store.flow(key) or CallFlow(key)
            except Exception as error:  # noqa: BLE001 — no failure of the store fails a run
                self._failed(known, error)
        return known.flow

    def _write(
        self, known: _Known, was: CallFlow, to: CallFlow, ended: Iterable[str]
    ) -> bool | None:
        """Store *to*, in which the calls *ended* have no place. False: another process was first;
        None: the store did not answer.
        """
        try:
            written = self._store.replace_flow(was, to)
        except Exception as error:  # noqa: BLE001 — no failure of the store fails a run
            self._failed(known, error)
            return None
        known.flow = to if written else None
        if written:
            self._forget(known, ended)
        return written

    def _failed(self, known: _Known, error: Exception) -> None:
        known.flow, known.failure, known.failed_at = None, error, self._clock.now()
        self._on_error(error)


def _soon(now: datetime, caller: WaitingRun, within: timedelta) -> datetime:
    """An instant in the second half of *within* after *now*, other for each caller."""
    return cut(now + within / 2 + spread(caller.name, within / 2))


def _text(limit: CallLimit) -> str:
    parts = []
    if limit.per_minute is not None:
        parts.append(f"{limit.per_minute} calls per minute")
    if limit.parallel is not None:
        parts.append(f"{limit.parallel} at the same time")
    return ", ".join(parts)
