"""Requests that may be sent again: what bears an `Idempotency-Key` is done once, however often it
comes.

The first request leaves its instant in the table `requests`. All that a request makes is named
after its key and that instant, so one that comes again (also where the first died between its
effect and its answer) makes nothing new; if the answer was kept, it gets that one. Nothing is ever
"in progress": of requests at the same time each does the same, once in effect.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from functions.api.app import app, header, now, services, tenant
from functions.api.operation import TOLD_ONCE
from functions.api.problems import problem_of
from nextfire.domain.errors import InvalidInputError, NextfireError
from nextfire.domain.instants import cut

KEY = "Idempotency-Key"
KEY_PATTERN = "[!-~]{1,128}"
MOST_KEPT = 300_000
"""Bytes of an answer that is kept: an item holds 400 KB."""


@dataclass(frozen=True, slots=True)
class Once:
    """A request. `at`: when it came first. `again`: it came before, and may have had its effect.
    `refused`: so it did, and was told that it had none.
    """

    at: datetime
    seed: str
    again: bool
    refused: bool = False

    @property
    def asked_before(self) -> datetime | None:
        """When it came first, if that may be when it has its effect: not if it was refused then."""
        return self.at if self.again and not self.refused else None

    def token(self, what: str) -> str:
        """16 hexadecimal digits, for each *what* others, and the same whenever it comes again."""
        return hashlib.sha256(f"{self.seed}#{what}".encode()).hexdigest()[:16]


def once() -> Once:
    """The request that is being answered."""
    found: Once = app.context["once"]
    return found


def keep_no_answer() -> None:
    """Have the answer to this request not kept: asked again, what failed is tried again."""
    app.context["keep"] = False


def do_once(app: Any, next_middleware: NextMiddleware) -> Response[Any]:  # noqa: ANN401 — as the library has it
    """Answers a request with what was answered to it before, if that was kept."""
    route, key, at = app.context["_route"], header(KEY), cut(now())
    if key is None or app.current_event.http_method.upper() != "POST" or not route.responses:
        app.append_context(once=Once(at, secrets.token_hex(16), again=False))
        return next_middleware(app)
    if not re.fullmatch(KEY_PATTERN, key):
        remedy = "Send 1 to 128 visible ASCII characters. For example a UUID."
        raise InvalidInputError(KEY, key, "not a key", remedy)
    of, requests, fingerprint = tenant(), services().requests, _fingerprint(app)
    kept = requests.begin(of, key, fingerprint, at)
    if kept is not None:
        if kept.fingerprint != fingerprint:
            raise InvalidInputError(
                KEY, key, "came before with another request", "Use a new key for a new request."
            )
        if kept.answer is not None:
            return _read(kept.answer)
        at = kept.at
    refused = kept is not None and kept.refused
    app.append_context(
        once=Once(at, f"{of}#{key}#{at.isoformat()}", again=kept is not None, refused=refused)
    )
    try:
        response: Response[Any] = next_middleware(app)
    except NextfireError as error:
        if problem_of(error).status_code < HTTPStatus.INTERNAL_SERVER_ERROR and not refused:
            requests.refuse(of, key, at)
        raise
    if not app.context.get("keep", True):
        if not refused:
            requests.refuse(of, key, at)
        return response
    if route.openapi_extensions.get(TOLD_ONCE):
        return response
    text = _written(response)
    return response if len(text) > MOST_KEPT else _read(requests.finish(of, key, at, text))


def _fingerprint(app: Any) -> str:  # noqa: ANN401
    event = app.current_event
    parts = [event.http_method.upper(), app.context["_path"], event.decoded_body or ""]
    if (condition := header("If-Match")) is not None:
        parts.append(condition)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _written(response: Response[Any]) -> str:
    return json.dumps([int(response.status_code), response.headers, response.body])


def _read(text: str) -> Response[Any]:
    status, headers, body = json.loads(text)
    return Response(status, headers.get("Content-Type"), body, headers)


app.use([do_once])
