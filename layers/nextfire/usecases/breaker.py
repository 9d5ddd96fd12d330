"""The circuit breaker: which runs may call their destination now.

Each process keeps the states of the endpoints that it calls. The costs, in requests to the store
(a read is eventually consistent: 0.5 read units; a write: 1 write unit, as is a refused one):

| path | reads | writes |
|---|---|---|
| run on a CLOSED endpoint, state read less than 5 s ago | 0 | 0 |
| run on a CLOSED endpoint otherwise | 1 | 0 |
| response of a CLOSED endpoint without failures | 0; 1 after a call of over 5 s | 0 |
| each of the first 5 failures | 0 or 1 | 1 |
| failures after that | 0 or 1 | 0 |
| run on an OPEN or PAUSED endpoint | 0; 1 every 5 s | 0 |
| probe | 1 | 1, which succeeds in one process |
| probe whose run makes no attempt | 0 | 1 |
| response that closes it | 0 or 1 | 1, at most 3 |

In a process, one thread at a time calls the store about an endpoint; the others use its result. So
failures of any number of runs cost a process at most 5 writes for each outage. Processes that fail
at the same time conflict: a failure whose write is refused is not counted, and not written again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass, field
from nextfire.domain import endpoints
from nextfire.domain.endpoints import Endpoint, EndpointKey, Outcome
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.targets import Hold

KNOWN_FOR = timedelta(seconds=5)
"""How long a process uses a state without reading it again."""
WRITTEN_WITHIN = timedelta(seconds=1)
"""Maximum age of a state from which a write is made: an older one is read again first."""
_CLOSING_TRIES = 3
_MAX_KNOWN = 10_000


@dataclass(slots=True)
class _Known:
    """What a process knows about an endpoint. `endpoint`: None if the store never answered.
    `probe`: the run that is its probe, if one of this process is, and the endpoint as stored then.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    endpoint: Endpoint | None = None
    read_at: datetime | None = None
    probe: tuple[str, Endpoint] | None = None

    def is_fresh(self, now: datetime, longest: timedelta = KNOWN_FOR) -> bool:
        return self.read_at is not None and timedelta() <= now - self.read_at < longest

    def keep(self, endpoint: Endpoint | None, now: datetime) -> None:
        known = self.endpoint
        if endpoint and known and endpoint.version < known.version and self.is_fresh(now):
            return  # an eventually consistent read has not seen the latest write yet
        self.endpoint, self.read_at = endpoint, now


class Breaker:
    """The breaker of one pool in one process; thread-safe.

    *on_error*: called with an error of the store. Such errors neither delay a run nor change its
    outcome: for the next 5 s the process continues with the state that it knows, or with none.
    """

    def __init__(
        self,
        store: EndpointStore,
        pool: str,
        clock: Clock,
        *,
        on_error: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._pool = pool
        self._clock = clock
        self._on_error = on_error
        self._known: dict[EndpointKey, _Known] = {}
        self._lock = threading.Lock()

    def admit(self, tenant: str, destination: str, run: str, now: datetime) -> Hold | None:
        """Return why and until when *run* must not call *destination*; None if it may.

        Args:
            tenant: The tenant of the job.
            destination: ``host:port``.
            run: Identifies the run.
            now: The instant of the decision.
        """
        key = EndpointKey(self._pool, tenant, destination)
        known, seed = self._of(key), f"{run}#{now}"
        with known.lock:
            endpoint = self._read(key, known, now)
            if endpoint is None:
                return None
            decision = endpoints.admit(endpoint, now, seed)
            if isinstance(decision, Endpoint) and not known.is_fresh(now, WRITTEN_WITHIN):
                endpoint = self._read(key, known, now, again=True) or endpoint
                decision = endpoints.admit(endpoint, now, seed)
            if not isinstance(decision, Endpoint):
                return decision
            taken = self._write(known, endpoint, decision, now)
            if taken is not False:
                known.probe = run, decision
                return None
            # Another process is the probe.
            latest = self._read(key, known, now, again=True) or endpoint
            return endpoints.hold(latest, now, seed)

    def report(
        self,
        tenant: str,
        destination: str,
        outcome: Outcome,
        retry_at: datetime | None = None,
    ) -> None:
        """Record the result of a call of *destination*; *retry_at*: the end of its Retry-After."""
        key = EndpointKey(self._pool, tenant, destination)
        known = self._of(key)
        with known.lock:
            for _ in range(1 if outcome == "down" else _CLOSING_TRIES):
                now = self._clock.now()
                endpoint = self._read(key, known, now)
                if endpoint is None or not endpoints.reported(endpoint, outcome, now, retry_at):
                    return
                if not known.is_fresh(now, WRITTEN_WITHIN):
                    endpoint = self._read(key, known, now, again=True) or endpoint
                changed = endpoints.reported(endpoint, outcome, now, retry_at)
                if changed is None or self._write(known, endpoint, changed, now) is not False:
                    return

    def unused(self, tenant: str, destination: str, run: str) -> None:
        """*run* was admitted, and ended without an attempt: if it was the probe, the next run is.
        Never raises.
        """
        known = self._of(EndpointKey(self._pool, tenant, destination))
        with known.lock:
            if known.probe is not None and known.probe[0] == run:
                (_, taken), now = known.probe, self._clock.now()
                known.probe = None
                self._write(known, taken, endpoints.given_back(taken, now), now)

    def known(self, tenant: str, destination: str) -> Endpoint | None:
        """The endpoint as this process knows it, without a read; None if it does not."""
        return self._of(EndpointKey(self._pool, tenant, destination)).endpoint

    def _of(self, key: EndpointKey) -> _Known:
        with self._lock:
            if len(self._known) >= _MAX_KNOWN and key not in self._known:
                self._known.clear()
            return self._known.setdefault(key, _Known())

    def _read(
        self, key: EndpointKey, known: _Known, now: datetime, *, again: bool = False
    ) -> Endpoint | None:
        """The endpoint, as known or from the store; None if the store never answered."""
        # Later than *now*, if this thread waited for another one.
        if known.is_fresh(max(now, self._clock.now())) and not again:
            return known.endpoint
        try:
            known.keep(self._store.get(key) or Endpoint(key), now)
        except Exception as error:  # noqa: BLE001 — no failure of the store delays a run
            self._on_error(error)
            known.read_at = self._clock.now()  # a timeout may take longer than the 5 s
        return known.endpoint

    def _write(self, known: _Known, was: Endpoint, to: Endpoint, now: datetime) -> bool | None:
        """Store *to*. Returns None if the store did not answer: then this process assumes it."""
        try:
            written = self._store.replace(was, to)
        except Exception as error:  # noqa: BLE001 — no failure of the store changes an outcome
            self._on_error(error)
            written = None
        if written is False:
            known.read_at = None
        else:
            known.keep(to, now)
        return written
