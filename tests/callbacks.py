"""What tests of calls share: jobs that call, a supervisor, and a transport without a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from nextfire.domain.attempt import Attempt
from nextfire.domain.job import Job
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import Directive
from nextfire.domain.run import Run, RunState
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.messages import Request, Response, Timings
from nextfire.targets.http.tls import TlsSettings
from tests.builders import LEASE, NOON, a_job, a_run

LONGEST = timedelta(minutes=10)


def a_callback(url: str = "https://api.example.com/hooks", **http: Any) -> Job:
    """A job that calls *url*. *http*: other members of `target.http`."""
    return a_job(target={"pool": "calls", "http": {"url": url, **http}}, payload={"id": 7})


def a_running_run(**fields: Any) -> Run:
    return a_run(
        RunState.RUNNING,
        attempt=1,
        fence=1,
        worker="a",
        lease_until=NOON + LEASE,
        attempts=(Attempt(1, "a", NOON),),
        **fields,
    )


@dataclass
class Control:
    """A `RunControl` with a fixed *directive*."""

    directive: Directive = Directive.CONTINUE
    cancel_reason: str = "cancelled on request"

    def ask(self) -> Directive:
        return self.directive

    def output(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002
        raise AssertionError("calls print nothing")

    def checkpoint(self) -> bytes | None:
        raise AssertionError("calls have no checkpoints")

    def save(self, checkpoint: bytes) -> str | None:  # noqa: ARG002
        raise AssertionError("calls have no checkpoints")

    def load(self) -> None:
        raise AssertionError("calls have no checkpoints")


def response(
    status: int = 200, body: bytes = b"", *, truncated: bool = False, **headers: str
) -> Response:
    """A response; underscores in names of *headers* stand for hyphens."""
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(
        status, pairs, body, truncated, "93.184.216.34:443", Timings(0.1, 0.2, 0.3, 0.4, 1)
    )


@dataclass
class MemoryTransport:
    """Responds with each of *answers* in turn, and then with the last one."""

    answers: list[Response | Exception] = field(default_factory=lambda: [response()])
    sent: list[Request] = field(default_factory=list)
    tls: list[TlsSettings | None] = field(default_factory=list)
    rules: AddressRules = field(default_factory=AddressRules)

    def send(
        self,
        request: Request,
        *,
        tls: TlsSettings | None = None,
        timeout: float,  # noqa: ARG002 - as the transport
        ask: Callable[[], bool],
        cap: int = 0,  # noqa: ARG002 - as the transport
    ) -> Response:
        self.sent.append(request)
        self.tls.append(tls)
        ask()
        answer = self.answers[min(len(self.sent), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer
