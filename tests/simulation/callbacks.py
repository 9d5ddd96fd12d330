"""HTTP callbacks in histories: a receiver that answers, fails, is slow and is down; and the gates
of executors, whose decisions are checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.endpoints import Endpoint, EndpointKey, EndpointState
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.targets import AttemptResult, Hold, RunControl
from nextfire.domain.run import Run
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.messages import CallFailedError, Failure, Request, Response
from nextfire.targets.http.outcome import UNAVAILABLE, destination_of
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.http.tls import TlsSettings
from nextfire.testing.kernel import SECOND, Actor, Task, current
from nextfire.usecases.breaker import KNOWN_FOR
from nextfire.usecases.endpoint_gate import EndpointGate
from tests.callbacks import response
from tests.fakes import MemoryEndpointStore, MemorySecrets
from tests.simulation.monitor import CLOCKS_APART, Monitor

if TYPE_CHECKING:
    from nextfire.targets.http.transport import Transport
    from tests.simulation.system import System

URLS = (*["https://api.example.com/hooks"] * 4, "https://crm.example.com:8443/in")
_SUCCESS = 200
_NEVER = datetime.min.replace(tzinfo=UTC)
_SEEN_WITHIN = KNOWN_FOR + timedelta(seconds=3) + CLOCKS_APART
"""How long after a change of an endpoint a process may decide by its former state: it knows it for
5 s, from a read that may be 2 s old.
"""


@dataclass(frozen=True, slots=True)
class Received:
    """A request that reached the receiver. `status`: its response, whether it got back or not."""

    execution_id: str
    attempt: int
    status: int
    trace: str
    scheduled_at: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """A run that a gate let pass. `until`: when its place ends without being given back."""

    actor: Actor
    at: datetime
    until: datetime


class Receiver:
    """The destinations of all callbacks. Each is down from time to time."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.received: dict[str, list[Received]] = defaultdict(list)
        """By idempotency key."""
        self._down_until: Counter[str] = Counter()

    def take(self, request: Request) -> tuple[Response | CallFailedError, float]:
        """The response to *request* or the failure to get one, and the seconds that it takes."""
        kernel = self.system.kernel
        dice, host = kernel.dice, request.url
        if dice.random() < 0.15:
            self._down_until[host] = kernel.at + dice.choice([20, 100, 400, 1_500]) * SECOND
        if kernel.at < self._down_until[host]:
            if dice.random() < 0.5:
                return CallFailedError(Failure.CONNECT, "connection refused"), 0
            return self.answer(request, dice.choice([502, 503, 504])), 0
        lasts = dice.choice([0, 0, 0, 0.1, 1, 3, 25, 90])
        answer = self.answer(request, dice.choice([*[_SUCCESS] * 8, 500, 500, 409, 429, 410]))
        lost = dice.random()
        if lost < 0.1:
            return CallFailedError(Failure.TIMEOUT, "no response", sent=True), lasts
        if lost < 0.15:
            return CallFailedError(Failure.PROTOCOL, "connection reset", sent=True), lasts
        return answer, lasts

    def answer(self, request: Request, status: int) -> Response:
        headers = request.headers
        self.received[headers["Idempotency-Key"]].append(
            Received(
                headers["Nextfire-Execution-Id"],
                int(headers["Nextfire-Attempt"]),
                status,
                headers["traceparent"].split("-")[1],
                headers["Nextfire-Scheduled-At"],
            )
        )
        if status in UNAVAILABLE and self.system.kernel.dice.random() < 0.5:
            return response(status, Retry_After=str(self.system.kernel.dice.choice([1, 30, 900])))
        return response(status)

    def check(self, runs: Mapping[RunKey, Run]) -> None:
        """Check what was received against the records: a repeated request is recognizable, and a
        run SUCCEEDED only if its receiver answered so.
        """
        for name, requests in self.received.items():
            same = {(each.execution_id, each.trace, each.scheduled_at) for each in requests}
            assert len(same) == 1, f"one idempotency key for {same}"
            assert requests[0].execution_id == name, f"{name} is the key of {same}"
        for key, run in runs.items():
            got = {(each.attempt, each.status) for each in self.received[key.execution_id]}
            for attempt in run.attempts:
                if attempt.call is None:
                    continue
                name = f"{key.execution_id}, attempt {attempt.number}"
                if attempt.outcome is AttemptOutcome.SUCCEEDED:
                    assert (attempt.number, _SUCCESS) in got, f"{name} SUCCEEDED, but got {got}"


@dataclass(frozen=True, slots=True)
class _Transport:
    """The transport of one attempt."""

    receiver: Receiver
    actor: Actor
    run: RunKey

    def send(
        self,
        request: Request,
        *,
        tls: TlsSettings | None = None,  # noqa: ARG002 — as the transport
        timeout: float,
        ask: Callable[[], bool],
        cap: int = 0,  # noqa: ARG002 — as the transport
    ) -> Response:
        system, actor = self.receiver.system, self.actor
        attempt = int(request.headers["Nextfire-Attempt"])
        with system.effects.of(actor, self.run, attempt, frozen=False):
            answer, lasts = self.receiver.take(request)
            system.began(actor, self.run.execution_id, attempt, request.body.decode())
            while lasts > 0:
                if ask():
                    raise CallFailedError(Failure.STOPPED, "stopped", sent=True)
                if timeout <= 0:
                    raise CallFailedError(Failure.TIMEOUT, "no response in time", sent=True)
                step = min(lasts, timeout, 1)
                actor.advance(seconds=step)
                lasts, timeout = lasts - step, timeout - step
        if isinstance(answer, CallFailedError):
            raise answer
        return answer


class Endpoints:
    """Watches the endpoints and the gates of all executors."""

    def __init__(self, monitor: Monitor, endpoints: MemoryEndpointStore) -> None:
        self._monitor = monitor
        self._endpoints = endpoints
        self._closed_off: dict[EndpointKey, datetime] = {}
        """Since when an endpoint is OPEN or PAUSED, by true time."""
        self._limited_at: dict[EndpointKey, datetime] = {}
        """When its limit changed last."""
        self.probes: dict[Task, EndpointKey] = {}
        """The tasks that wrote that they are the probe."""
        self.admitted: dict[EndpointKey, dict[RunKey, Admitted]] = defaultdict(dict)
        """The runs that hold one of the places of an endpoint."""
        self.probed = 0

    def changed(self, key: EndpointKey, was: Endpoint | None, to: Endpoint | None) -> None:
        """Check each write of an endpoint."""
        assert to is not None, "endpoints are not deleted"
        was = was or Endpoint(key)
        if to.version != was.version + 1:
            self._monitor.wrong(f"{key}: version {to.version} was written over {was.version}")
        if to.limit != was.limit:
            self._limited_at[key] = self._monitor.now
        if to.state is EndpointState.CLOSED:
            self._closed_off.pop(key, None)
            return
        self._closed_off.setdefault(key, self._monitor.now)
        if to.failed_probes > was.failed_probes:
            self.probed += 1
            assert was.probe_at is not None
            if self._monitor.now < was.probe_at - CLOCKS_APART:
                self._monitor.wrong(f"{key.destination}: a probe before {was.probe_at}")

    def call(self, call: str, args: tuple[Any, ...], done: Any) -> None:
        """Note who became a probe, even if the answer is lost."""
        if call == "endpoints.replace" and done and args[1].failed_probes > args[0].failed_probes:
            self.probes[current()] = args[1].key

    def check_admitted(self, key: EndpointKey, began_at: datetime) -> None:
        """A run that is not a probe was admitted by a gate to which the store has answered."""
        since = self._closed_off.get(key)
        if since is not None and began_at - since > _SEEN_WITHIN:
            self._monitor.wrong(f"{key.destination}: called without a probe, closed since {since}")

    def check_places(self, key: EndpointKey, run: RunKey, mine: Admitted) -> None:
        """The runs that hold a place of *key*, with *run*, do not exceed its limit."""
        endpoint = self._endpoints.items.get(key)
        most = endpoint.limit.parallel if endpoint else None
        if most is None or self._monitor.now - self._limited_at[key] < _SEEN_WITHIN:
            return
        held = self.admitted[key]
        held[run] = mine
        now, since = self._monitor.now, self._limited_at[key] + _SEEN_WITHIN
        valid = [
            each
            for each in held.values()
            if each.actor.alive and each.at > since and each.until > now + CLOCKS_APART
        ]
        if len(valid) > most:
            self._monitor.wrong(f"{key.destination}: {len(valid)} calls, {most} are allowed")


@dataclass(slots=True)
class CallTarget:
    """The runner of callbacks of the executor *actor*."""

    system: System
    actor: Actor
    pool: str
    gates: dict[Task, EndpointGate] = field(default_factory=dict)
    """A gate for each thread: threads that waited for the lock of another one would block the only
    real thread.
    """
    random: Random = field(init=False)
    failed_at: datetime = _NEVER
    """When the store of endpoints failed last: then calls are neither held nor limited."""

    def __post_init__(self) -> None:
        self.random = Random(self.actor.name)  # noqa: S311 — repeatable

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> Hold | None:
        began_at, endpoints = self.system.monitor.now, self.system.endpoints
        hold = self._target(run).admit(job, run, now, first=first)
        is_probe = endpoints.probes.pop(current(), None) is not None
        # A probe needs no place: it is the only call in its interval.
        if hold is None and not is_probe and began_at - self.failed_at > _SEEN_WITHIN:
            key, at = self._key(job), self.system.monitor.now
            endpoints.check_admitted(key, began_at)
            endpoints.check_places(key, run, Admitted(self.actor, at, at + job.definition.timeout))
        return hold

    def release(self, job: Job, run: RunKey) -> None:
        self.system.endpoints.admitted[self._key(job)].pop(run, None)
        self._target(run).release(job, run)

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        return self._target(run.key).attempt(job, run, supervisor, longest)

    def _key(self, job: Job) -> EndpointKey:
        call = job.definition.target.http
        assert call is not None
        return EndpointKey(self.pool, job.key.tenant, destination_of(call.url))

    def _target(self, run: RunKey) -> HttpTarget:
        secrets = self.system.wire.port(self.actor, "secrets")
        kernel = self.system.kernel
        return HttpTarget(
            transport=cast("Transport", _Transport(self.system.receiver, self.actor, run)),
            secrets=secrets,
            authentication=Authentication(secrets, None, None),
            clock=self.actor,
            gate=self._gate(),
            monotonic=lambda: kernel.at / SECOND,
        )

    def _gate(self) -> EndpointGate:
        task = current()
        if task not in self.gates:
            store = self.system.wire.port(self.actor, "endpoints")
            self.gates[task] = EndpointGate(
                store, self.pool, self.actor, on_error=self._failed, random=self.random
            )
        return self.gates[task]

    def _failed(self, error: Exception) -> None:
        self.failed_at = self.system.monitor.now
        self.system.kernel.log(self.actor.name, f"gate: {error}")


def received_at_rest(receiver: Receiver, clock: Clock) -> HttpTarget:
    """The runner of callbacks when all faults have ended: every destination is up."""
    secrets = MemorySecrets()
    return HttpTarget(
        transport=cast("Transport", _RestTransport(receiver)),
        secrets=secrets,
        authentication=Authentication(secrets, None, None),
        clock=clock,
    )


@dataclass(frozen=True, slots=True)
class _RestTransport:
    receiver: Receiver

    def send(self, request: Request, **_: Any) -> Response:
        return self.receiver.answer(request, _SUCCESS)
