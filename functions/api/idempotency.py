"""Requests with an `Idempotency-Key`, and their stored responses. See `IdempotentRequests`."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from functions.api.app import app, caller, header, tenant
from functions.api.operation import NOT_STORED
from functions.api.problems import problem_of
from functions.api.services import now, services
from nextfire.domain.errors import InvalidInputError, NextfireError
from nextfire.domain.instants import cut
from nextfire.usecases.idempotent_requests import KEY, IdempotentRequest, IdempotentRequests

KEY_PATTERN = "[!-~]{1,128}"
MAX_STORED_RESPONSE_BYTES = 300_000
"""Maximum size of a stored response in bytes: a DynamoDB item holds 400 KB."""


def once() -> IdempotentRequest:
    """The current request."""
    found: IdempotentRequest = app.context["once"]
    return found


def skip_storing_response() -> None:
    """Do not store the response to this request, so that a retry tries failed parts again."""
    app.context["keep"] = False


def answer_idempotently(app: Any, next_middleware: NextMiddleware) -> Response[Any]:  # noqa: ANN401 — as the library has it
    """Replay the stored response to a request, if there is one."""
    route, key = app.context["_route"], header(KEY)
    if key is None or app.current_event.http_method.upper() != "POST" or not route.responses:
        app.append_context(once=IdempotentRequest(cut(now()), secrets.token_hex(16), again=False))
        return next_middleware(app)
    if not re.fullmatch(KEY_PATTERN, key):
        remedy = "Send 1 to 128 visible ASCII characters. For example a UUID."
        raise InvalidInputError(KEY, key, "not a key", remedy)
    answers = IdempotentRequests(services().requests, tenant(), key, realm=_realm())
    asked = answers.begin(_fingerprint(app), now())
    if asked.answer is not None:
        return _read(asked.answer)
    app.append_context(once=asked)
    try:
        response: Response[Any] = next_middleware(app)
    except NextfireError as error:
        if problem_of(error).status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            # Possibly because a repetition at the same time took effect first.
            answer = answers.refuse(asked)
            if answer is not None:
                return _read(answer)
        raise
    if not app.context.get("keep", True):
        answers.refuse(asked)
        return response
    if route.openapi_extensions.get(NOT_STORED):
        return response
    text = _written(response)
    return response if len(text) > MAX_STORED_RESPONSE_BYTES else _read(answers.finish(asked, text))


def _realm() -> str:
    """Callers with the same label restriction share responses: they access the same jobs."""
    labels = caller().restriction.labels
    return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest() if labels else ""


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


app.use([answer_idempotently])
