"""Calls over HTTP: sent, sent again where that is safe, and their answers read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import httpx

from nextfire.client.access import ENDPOINT, Bearer, is_local
from nextfire.client.errors import MAYBE_DONE, ApiError, ClientError, UnreachableError, error_of

T = TypeVar("T")
FIRST_WAIT = 0.2
"""Seconds before the first retry, on average; twice as long before each next one."""
LONGEST_WAIT = 20.0
"""Seconds. Where an answer asks to wait longer, its error is raised instead."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
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
    """How long is waited, and by which clock. `timeout`: seconds for an answer; none is asked for
    again later than that after the first request of a call. `retries`: at most so many.
    """

    timeout: float
    retries: int
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic

    def wait(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after *attempt* (from 1): what the answer *asked* for, or longer each
        time, and never the same for all.
        """
        spread = random.uniform(0.5, 1.5)  # noqa: S311 — no secret
        return max(asked or 0.0, FIRST_WAIT * 2.0 ** (attempt - 1) * spread)


class Caller:
    """Calls one endpoint."""

    def __init__(
        self, endpoint: str, auth: httpx.Auth, pace: Pace, transport: httpx.BaseTransport | None
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._pace = pace
        self._http = httpx.Client(auth=auth, transport=transport, timeout=pace.timeout)
        self._carried = auth.kind if isinstance(auth, Bearer) else "iam"

    def close(self) -> None:
        self._http.close()

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
        """The answer's document, and its ETag if it has one.

        What fails in passing is tried again: where no request was carried out in any case; where
        one may have been, only if it may come *again* without another effect, or another answer.

        Raises:
            ApiError: The API refused, or the gateway.
            UnreachableError: There was no answer.
            ClientError: There was one, but not of this API.
        """
        ask = partial(self._once, method, path + _query(query), body, headers)
        return self._patiently(ask, again=again)

    def put(self, url: str, headers: Mapping[str, str], content: bytes) -> None:
        """Upload *content* to a signed URL, which says by itself who may.

        Raises:
            ClientError: It was refused.
            UnreachableError: It was not taken, several times.
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
        place = httpx.URL(url).host
        try:
            response = self._http.request(
                "PUT", url, content=content, headers=dict(headers), auth=None
            )
            why = f"{response.status_code} {response.reason_phrase}"
        except httpx.HTTPError as error:
            response, why = None, type(error).__name__
        # What is behind an error shows the URL, so it is not told.
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
            response = self._http.request(
                method, self.endpoint + path, json=body, headers=dict(headers or {})
            )
        except _NOT_SENT as error:
            raise UnreachableError(
                f"Cannot reach {self.endpoint}: {error}.", self._remedy(), maybe_done=False
            ) from error
        except httpx.TimeoutException as error:
            raise UnreachableError(
                f"{self.endpoint} did not answer within {self._pace.timeout:.0f} s.",
                MAYBE_DONE,
                maybe_done=True,
            ) from error
        except httpx.TransportError as error:
            raise UnreachableError(
                f"The connection to {self.endpoint} was lost: {error}.",
                f"{self._remedy()} {MAYBE_DONE}",
                maybe_done=True,
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ClientError(f"Cannot reach {self.endpoint}: {error}.", self._remedy()) from error
        return self._read(response), response.headers.get("ETag")

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            body: object = response.json()
        except ValueError:
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
        return f"Check --endpoint (or {ENDPOINT}) and the network."


def _may_go_better(error: UnreachableError | ApiError, *, again: bool) -> bool:
    if isinstance(error, UnreachableError):
        return again or not error.maybe_done
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    # A 500 of the API itself will be one again; the gateway's says that the authorizer failed.
    failing = error.by_gateway and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return again and (error.status in _PASSING or failing)


def _seconds(text: str | None) -> float | None:
    """The seconds that a Retry-After asks for; None: it has none, or a date."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def segment(text: str) -> str:
    """*text* as one segment of a path."""
    return quote(text, safe="")


def _query(given: Mapping[str, object] | None) -> str:
    if not given:
        return ""
    pairs = [(name, _text(value)) for name, value in given.items() if value is not None]
    # As a signature has it: a space is %20, never a plus.
    return f"?{urlencode(pairs, quote_via=quote, safe='')}" if pairs else ""


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
