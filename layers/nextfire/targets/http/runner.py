"""Makes HTTP callbacks.

A callback is sent at least once: an executor that dies after sending is followed by another attempt
with the same idempotency key.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.endpoints import Outcome
from nextfire.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.job import Job
from nextfire.domain.masking import Masker
from nextfire.domain.message import recordable
from nextfire.domain.ports.access import Secrets
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.ports.targets import AttemptResult, Hold, RunControl
from nextfire.domain.references import Reference
from nextfire.domain.run import Run
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.document import HttpCall
from nextfire.targets.http.messages import CallFailedError, Failure, Request, Response
from nextfire.targets.http.outcome import (
    UNAVAILABLE,
    destination_of,
    result_of,
    result_without_response,
)
from nextfire.targets.http.request import request_of
from nextfire.targets.http.tls import TlsSettings
from nextfire.targets.http.transport import Transport
from nextfire.targets.template import TemplateError

_REJECTED = frozenset({401, 403})
_DOWN = frozenset({502, 503, 504})
_UNREACHABLE = frozenset({Failure.NAME, Failure.CONNECT, Failure.TIMEOUT, Failure.CLOSED})
"""Not TLS: the settings of one job may be wrong, and must not hold up the others."""
_NOT_THE_SAME = (
    "nothing was sent: the request would not be the same, because the job has changed since then. "
    "Run the job now instead."
)


class DestinationGate(Protocol):
    """Knows which destinations are available, from the reports of all executors."""

    def admit(
        self,
        tenant: str,
        destination: str,
        run: str,
        now: datetime,
        *,
        first: bool,
        timeout: timedelta,
    ) -> Hold | None:
        """Return why *run* must not call *destination* now, or None. *first*: it is its first
        dispatch; *timeout*: maximum duration of the call.
        """

    def leave(self, tenant: str, destination: str, run: str, *, unused: bool) -> None:
        """Give back what *run* took when it was admitted. *unused*: no attempt was made. Never
        raises.
        """

    def report(
        self, tenant: str, destination: str, outcome: Outcome, retry_at: datetime | None
    ) -> None:
        """Report the outcome of a call. Never raises."""


class HttpTarget:
    """`TargetRunner` of HTTP callbacks. *gate*: None if all destinations are always called."""

    def __init__(
        self,
        *,
        transport: Transport,
        secrets: Secrets,
        authentication: Authentication,
        clock: Clock,
        gate: DestinationGate | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._secrets = secrets
        self._authentication = authentication
        self._clock = clock
        self._gate = gate
        self._monotonic = monotonic
        self._attempted: set[RunKey] = set()

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> Hold | None:
        call = job.definition.target.http
        if self._gate is None or call is None:
            return None
        return self._gate.admit(
            job.key.tenant,
            destination_of(call.url),
            run.execution_id,
            now,
            first=first,
            timeout=job.definition.timeout,
        )

    def release(self, job: Job, run: RunKey) -> None:
        call = job.definition.target.http
        if self._gate is None or call is None:
            return
        unused = run not in self._attempted
        self._attempted.discard(run)
        destination = destination_of(call.url)
        self._gate.leave(job.key.tenant, destination, run.execution_id, unused=unused)

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        self._attempted.add(run.key)
        timeout = min(job.definition.timeout, longest).total_seconds()
        masker, line = Masker(), _Line(self._transport, supervisor, self._monotonic, timeout)
        try:
            attempted = self._call(job, run, masker, line)
        except CallFailedError as error:  # of the token server
            permanent = error.problem is Failure.FORBIDDEN
            attempted = AttemptResult.failed(f"no token: {error.text}", permanent=permanent)
        except (InvalidInputError, NotFoundError, TemplateError) as error:
            attempted = AttemptResult.failed(str(error), permanent=True)
        except UnavailableError as error:  # not the job's failure
            attempted = AttemptResult.failed(str(error), unavailable=True)
        except Exception as error:  # noqa: BLE001 — it is recorded; the executor continues
            attempted = AttemptResult.failed(f"could not be made: {type(error).__name__}: {error}")
        if line.stopped is not Directive.CONTINUE:
            attempted = _stopped(attempted, line.stopped, supervisor)
        reason = recordable(masker.text(attempted.result.reason))
        return replace(attempted, result=replace(attempted.result, reason=reason))

    def _call(self, job: Job, run: Run, masker: Masker, line: _Line) -> AttemptResult:
        """Build the request, send it, and judge the response."""
        call = job.definition.target.http
        assert call is not None  # noqa: S101 - this runner gets no other targets
        auth = self._authentication.headers(call.auth, job.key, masker, line.send)
        secrets = [self._secret(job, each, masker) for each in call.sign]
        tls = self._tls(job, call, masker)
        now = self._clock.now()
        request = request_of(call, job, run, secrets=secrets, auth=auth, now=now)
        if run.replay_of is not None and request.digest != run.replay_of.digest:
            return AttemptResult.failed(_NOT_THE_SAME, permanent=True)
        request = self._authentication.sign(call.auth, request, job.key, masker)
        try:
            response = line.send(request, tls)
        except CallFailedError as error:
            if error.problem in _UNREACHABLE and not (
                error.problem is Failure.TIMEOUT and line.was_short
            ):
                self._report(job, call, "down", None)
            return result_without_response(call, request, error, masker)
        attempted = result_of(call, request, response, masker, self._clock.now())
        if response.status in _REJECTED:
            self._authentication.rejected(call.auth, job.key, response.status)
        is_success = attempted.result.outcome is AttemptOutcome.SUCCEEDED
        outcome: Outcome = "ok" if is_success else _report_of(response.status)
        self._report(job, call, outcome, attempted.result.retry_at)
        return attempted

    def _tls(self, job: Job, call: HttpCall, masker: Masker) -> TlsSettings | None:
        if call.tls is None:
            return None
        ca, certificate, key = (
            None if each is None else self._secret(job, each, masker)
            for each in (call.tls.ca, call.tls.certificate, call.tls.key)
        )
        return TlsSettings(ca, certificate, key)

    def _secret(self, job: Job, reference: Reference, masker: Masker) -> str:
        value = self._secrets.resolve(job.key.tenant, reference)
        masker.add(value)
        return value

    def _report(
        self, job: Job, call: HttpCall, outcome: Outcome, retry_at: datetime | None
    ) -> None:
        if self._gate is not None:
            self._gate.report(job.key.tenant, destination_of(call.url), outcome, retry_at)


class _Line:
    """Sends the requests of one attempt, until its deadline and its supervisor's directive.

    `was_short`: less than half of the *timeout* (seconds) was left for the latest request: tokens
    and secrets took the rest.
    """

    def __init__(
        self,
        transport: Transport,
        supervisor: RunControl,
        monotonic: Callable[[], float],
        timeout: float,
    ) -> None:
        self._transport, self._supervisor, self._monotonic = transport, supervisor, monotonic
        self._timeout, self._until = timeout, monotonic() + timeout
        self.was_short = False
        self.stopped = Directive.CONTINUE

    def send(self, request: Request, tls: TlsSettings | None = None) -> Response:
        if self._ask():  # what came before may have taken as long as the lease
            raise CallFailedError(Failure.STOPPED, "stopped before the call")
        left = self._until - self._monotonic()
        self.was_short = left < self._timeout / 2
        if left <= 0:
            raise CallFailedError(
                Failure.TIMEOUT,
                "no time left for the call: tokens and secrets took all of timeoutSec",
            )
        return self._transport.send(request, tls=tls, timeout=left, ask=self._ask)

    def _ask(self) -> bool:
        self.stopped = self._supervisor.ask()
        return self.stopped is not Directive.CONTINUE


def _stopped(attempted: AttemptResult, verdict: Directive, supervisor: RunControl) -> AttemptResult:
    """The result of a call that its supervisor ended. The receiver may have acted on it."""
    outcome, reason = AttemptOutcome.HANDED_BACK, "its worker shut down"
    if verdict is Directive.CANCEL:
        outcome, reason = AttemptOutcome.CANCELLED, supervisor.cancel_reason
    return AttemptResult(Result(outcome, reason, call=attempted.result.call), verdict)


def _report_of(status: int) -> Outcome:
    if status in _DOWN:
        return "down"
    return "throttled" if status in UNAVAILABLE else "ok"
