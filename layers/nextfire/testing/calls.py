"""HTTP callbacks and AWS calls, answered by functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from nextfire.dataclass import dataclass, field
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from nextfire.domain.ports.access import Secrets
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.endpoints import EndpointStore
from nextfire.domain.ports.targets import TargetRunner
from nextfire.domain.target import TargetKind
from nextfire.targets.aws.runner import AwsTarget
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.messages import (
    CallFailedError,
    Failure,
    Request,
    Response,
    Timings,
    check_headers,
)
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.http.tls import TlsSettings
from nextfire.targets.http.transport import Transport
from nextfire.targets.role import Credentials
from nextfire.usecases.endpoint_gate import EndpointGate


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """The request of an HTTP callback, as it is sent: signed and authenticated. Names of `headers`
    are as the job writes them.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed.

        Raises:
            ValueError: It is not JSON.
        """
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The response to an HTTP callback. `body`: any JSON; text and bytes are sent unchanged."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class AwsError(Exception):
    """The error of an AWS call: raise it in the function that answers. *code*: for example
    ``ThrottlingException``.
    """

    def __init__(self, code: str, message: str = "", *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.response = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


HttpFunction = Callable[[HttpRequest], "HttpAnswer | int | None"]
"""Answers an HTTP callback: by an answer, or a status alone (None: 200). Without a response it
raises `TimeoutError` (too late), `ConnectionResetError` or `BrokenPipeError` (the receiver closed
the connection), or another `ConnectionError` (not connected).
"""
_STATUSES = range(200, 600)
_CLOSED = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
AwsFunction = Callable[[dict[str, Any]], "dict[str, Any] | None"]
"""Answers an AWS call: from the input of the action to its output, as of boto3."""


class Calls:
    """The functions that answer: `http` by the start of a URL, `aws` by ``service:Action``."""

    def __init__(self) -> None:
        self.http: dict[str, HttpFunction] = {}
        self.aws: dict[str, AwsFunction] = {}

    def target(
        self, pool: str, secrets: Secrets, clock: Clock, endpoints: EndpointStore
    ) -> TargetRunner:
        """The runner of the targets of *pool*: the product's own, on these functions."""
        role = _Role()
        return TargetsByKind(
            {
                TargetKind.HTTP: HttpTarget(
                    transport=_Answers(self),
                    secrets=secrets,
                    authentication=Authentication(secrets, role, _Identity()),
                    clock=clock,
                    gate=EndpointGate(endpoints, pool, clock),
                ),
                TargetKind.AWS: AwsTarget(_Clients(self), ["*"]),
            }
        )


class _Answers(Transport):
    """A `Transport` without a network."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(AddressRules())
        self._calls = calls

    def send(
        self,
        request: Request,
        *,
        tls: TlsSettings | None = None,
        timeout: float,
        ask: Callable[[], bool],
        cap: int = 64 * 1024,
    ) -> Response:
        del tls, timeout, ask
        check_headers(request.headers)
        function = self._function(request.url)
        given = HttpRequest(request.method, request.url, dict(request.headers), request.body)
        try:
            found = function(given)
        except TimeoutError as error:
            raise CallFailedError(Failure.TIMEOUT, str(error) or "timed out", sent=True) from error
        except _CLOSED as error:
            text = str(error) or "the connection was closed"
            raise CallFailedError(Failure.CLOSED, text, sent=True) from error
        except ConnectionError as error:
            raise CallFailedError(Failure.CONNECT, str(error) or "not connected") from error
        answer = _answer(found, request.url)
        body = _bytes(answer.body)
        headers = {"Content-Type": "application/json"} if body else {}
        headers |= answer.headers
        return Response(
            answer.status,
            tuple(headers.items()),
            body[:cap],
            len(body) > cap,
            "192.0.2.1:443",
            Timings(),
        )

    def _function(self, url: str) -> HttpFunction:
        found = [prefix for prefix in self._calls.http if url.startswith(prefix)]
        if not found:
            raise LookupError(f'the test answers no {url}: stack.http("{url}", lambda call: 200)')
        return self._calls.http[max(found, key=len)]


def _answer(found: HttpAnswer | int | None, url: str) -> HttpAnswer:
    answer = found if isinstance(found, HttpAnswer) else HttpAnswer(200 if found is None else found)
    if answer.status not in _STATUSES:
        raise TypeError(
            f"the function for {url} returned {found!r:.80}: return HttpAnswer(200, {{}}), a "
            "status from 200 to 599, or None"
        )
    return answer


def _bytes(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return b"" if body is None else json.dumps(body).encode()


class _Role:
    """`RoleCredentials` of no account."""

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:  # noqa: ARG002
        return Credentials("AKIDEXAMPLE", "example", "example")


class _Identity:
    """`WebIdentity` of no account."""

    def token(self, job: JobKey, audience: str, masker: Masker) -> str:  # noqa: ARG002
        return "example"


class _Clients:
    """`Clients` that answer by functions."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def client(
        self,
        job: JobKey,  # noqa: ARG002
        masker: Masker,  # noqa: ARG002
        service: str,
        region: str | None,  # noqa: ARG002
        timeout: float,  # noqa: ARG002
    ) -> Any:
        return _Client(self._calls.aws, service)


class _Client:
    """The part of an SDK client that `AwsTarget` uses."""

    def __init__(self, functions: Mapping[str, AwsFunction], service: str) -> None:
        self._functions, self._service = functions, service

    def _make_api_call(self, action: str, given: dict[str, Any]) -> dict[str, Any]:
        wanted = f"{self._service}:{action}"
        if wanted not in self._functions:
            raise LookupError(
                f'the test answers no {wanted}: stack.aws("{wanted}", lambda given: {{}})'
            )
        found = self._functions[wanted](given)
        if not isinstance(found, dict | None):
            raise TypeError(
                f"the function for {wanted} returned {found!r:.80}: return the output of the "
                "action, such as {}, or None"
            )
        return {"ResponseMetadata": {"HTTPStatusCode": 200}} | (found or {})
