"""HTTP calls: sends requests, retries them if that is safe, and reads responses."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import httpx2

from nextfire.client import exchange_log
from nextfire.client.access import ENDPOINT, is_local
from nextfire.client.bearer import Bearer
from nextfire.client.errors import (
    MAYBE_DONE,
    TRY_AGAIN,
    ApiError,
    ClientError,
    MissingError,
    UnreachableError,
    error_of,
)
from nextfire.client.folder import LOOPBACK
from nextfire.client.version import version
from nextfire.dataclass import dataclass

T = TypeVar("T")
FIRST_WAIT = 0.2
"""Average seconds before the first retry; doubled for each further retry."""
LONGEST_WAIT = 20.0
"""Seconds. If a response asks for a longer wait, its error is raised instead."""
READ_AGAIN = 5.0
"""Seconds before a read is repeated, unless the response asks for more; see `Caller.on_outage`."""
_DIRECT: Mapping[str, httpx2.BaseTransport | None] = {
    f"all://{f'[{host}]' if ':' in host else host}": None for host in LOOPBACK
}
"""No proxy for this machine: another one cannot reach it, and would get its API key unencrypted."""
_VARIABLES = (
    "Check the environment variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and"
    " SSL_CERT_DIR."
)
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_PASSING = frozenset(
    {
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Timeouts and retries, and their clock. `timeout`: seconds to wait for a response; no retry
    starts later than this after the first request of a call. `retries`: maximum number of retries.
    """

    timeout: float
    retries: int
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def wait(self, attempt: int, asked: float | None) -> float:
        """Return the seconds to wait after *attempt* (from 1): exponential backoff with jitter, at
        least what the response *asked* for.
        """
        spread = random.uniform(0.5, 1.5)  # noqa: S311 — no secret
        return max(asked or 0.0, FIRST_WAIT * 2.0 ** (attempt - 1) * spread)


class Caller:
    """Calls one endpoint. `on_outage`: gets the transient error of a read that was retried, once a
    call has succeeded. If it returns, the read is repeated.
    """

    on_outage: Callable[[ClientError], None] | None = None

    def __init__(
        self, endpoint: str, auth: httpx2.Auth, pace: Pace, transport: httpx2.BaseTransport | None
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._pace = pace
        self._connect = partial(
            httpx2.Client,
            auth=auth,
            transport=transport,
            timeout=pace.timeout,
            event_hooks=exchange_log.hooks(),
            mounts=_DIRECT,
            headers={"User-Agent": f"nextfire/{version()} python-httpx2/{httpx2.__version__}"},
        )
        self._of_process: dict[int, httpx2.Client] = {}
        self._connections()
        self._carried = auth.kind if isinstance(auth, Bearer) else "iam"
        self._answered = False

    def close(self) -> None:
        if own := self._of_process.get(os.getpid()):
            own.close()

    def _connections(self) -> httpx2.Client:
        """The connections of this process. A forked one has its own: of shared ones, each process
        would get responses of the other. It leaves those alone, whose locks may be held.
        """
        process = os.getpid()
        if process not in self._of_process:
            try:
                made = self._connect()
            except (OSError, ImportError, ValueError, httpx2.InvalidURL) as error:
                raise ClientError(
                    f"Cannot connect to {self.endpoint}: {error}.", _VARIABLES
                ) from error
            self._of_process.setdefault(process, made)
        return self._of_process[process]

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> tuple[dict[str, Any], str | None]:
        """Return the document of the response, and its ETag if it has one.

        Transient failures are retried: always if the request was certainly not executed; otherwise
        only if *again*, which means that a repetition has no other effect and no other response.

        Raises:
            ApiError: The API or the gateway rejected the request.
            UnreachableError: No response was received.
            ClientError: The response is not from a nextfire API.
        """
        ask = partial(self._once, method, path + _query(query), body, headers)
        while True:
            try:
                found = self._patiently(ask, again=again)
            except (UnreachableError, ApiError) as error:
                lasting = not self._answered or not _may_go_better(error, again=True)
                if self.on_outage is None or method != "GET" or lasting:
                    raise
                self.on_outage(error)
                wait = max(READ_AGAIN, getattr(error, "retry_after", None) or 0)
            else:
                self._answered = True
                return found
            self._pace.sleep(wait)

    def put(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        """Upload *content* to a signed URL, which needs no other authentication.

        Raises:
            ClientError: The upload was rejected.
            UnreachableError: The upload failed several times.
        """
        self._patiently(partial(self._put, url, headers, content), again=True)

    def _patiently(self, ask: Callable[[], T], *, again: bool) -> T:
        begun = self._pace.monotonic()
        attempt = 1
        while True:
            try:
                return ask()
            except (UnreachableError, ApiError) as error:
                wait = self._pace.wait(attempt, getattr(error, "retry_after", None))
                late = self._pace.monotonic() + wait > begun + self._pace.timeout
                over = attempt > self._pace.retries or wait > LONGEST_WAIT or late
                if over or not _may_go_better(error, again=again):
                    raise
            self._pace.sleep(wait)
            attempt += 1

    def _put(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        place = httpx2.URL(url).host
        try:
            response = self._connections().request(
                "PUT", url, content=content, headers=dict(headers), auth=None
            )
            why = f"{response.status_code} {response.reason_phrase}"
        except httpx2.HTTPError as error:
            response, why = None, type(error).__name__
        # The cause of the error contains the signed URL, so it is not chained.
        if response is None or response.is_server_error:
            raise UnreachableError(
                f"{place} did not take the upload: {why}.",
                "Try again: an upload that comes twice is one.",
                maybe_done=True,
            )
        if not response.is_success:
            raise ClientError(
                f"{place} refused the upload with {why}.",
                "Try again. If it stays so, look whether the API's role may write scripts.",
            )

    def _once(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[dict[str, Any], str | None]:
        try:
            response = self._connections().request(
                method, self.endpoint + path, json=body, headers=dict(headers or {})
            )
        except _NOT_SENT as error:
            raise UnreachableError(
                f"Cannot reach {self.endpoint}: {error}.", self._remedy(), maybe_done=False
            ) from error
        except httpx2.TimeoutException as error:
            raise UnreachableError(
                f"{self.endpoint} did not answer within {self._pace.timeout:.0f} s.",
                TRY_AGAIN if method == "GET" else MAYBE_DONE,
                maybe_done=True,
            ) from error
        except httpx2.TransportError as error:
            raise UnreachableError(
                f"The connection to {self.endpoint} was lost: {error}.",
                self._remedy() if method == "GET" else f"{self._remedy()} {MAYBE_DONE}",
                maybe_done=True,
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ClientError(f"Cannot reach {self.endpoint}: {error}.", self._remedy()) from error
        return self._read(response), response.headers.get("ETag")

    def _read(self, response: httpx2.Response) -> dict[str, Any]:
        try:
            body: object = response.json()
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            body = None
        if not response.is_success:
            raise error_of(
                response.status_code,
                body,
                carried=self._carried,
                request_id=response.headers.get("apigw-requestid"),
                retry_after=_seconds(response.headers.get("Retry-After")),
            )
        if body is None:
            raise ClientError(
                f"{response.url.copy_with(query=None)} answered {response.status_code} without"
                " JSON.",
                "Is this the endpoint of a nextfire API?",
            )
        return body

    def _remedy(self) -> str:
        if is_local(self.endpoint):
            return "The local stack is not up: start it with `nextfire up`."
        return f"Check endpoint=URL or {ENDPOINT}, and the network."


def _may_go_better(error: UnreachableError | ApiError, *, again: bool) -> bool:
    if isinstance(error, UnreachableError):
        return again or not error.maybe_done
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    # A 500 of the API is permanent; a 500 of the gateway means that the authorizer failed.
    failing = error.by_gateway and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return again and (error.status in _PASSING or failing)


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None if it is absent or a date."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def segment(text: str) -> str:
    """Encode *text* as one segment of a path.

    Raises:
        MissingError: It is empty, or a dot segment: the path would be that of something else.
    """
    if text in {"", ".", ".."}:
        raise MissingError(
            f"{text!r} is not an id or a name.",
            "A shell passes an empty text if a variable is not set." if not text else "",
        )
    return quote(text, safe="")


def _query(given: Mapping[str, object] | None) -> str:
    if not given:
        return ""
    pairs = [(name, _text(value)) for name, value in given.items() if value is not None]
    # Signatures need %20 for a space, not a plus.
    return f"?{urlencode(pairs, quote_via=quote, safe='')}" if pairs else ""


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
