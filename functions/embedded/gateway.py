"""The gateway of the embedded stack: authenticates requests by the authorizer, passes them to the
API's handler, and stores uploads. It does what API Gateway and S3 do on AWS.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from functions.embedded.gateway_event import GatewayRequest, GatewayResponse, event_of, response_of
from nextfire.adapters.files.script_shelf import UPLOADS
from nextfire.domain.errors import UnavailableError

MAX_REQUEST_BYTES = 10 * 1024 * 1024
"""The gateway's limit of a request's body, and the largest script."""
_OPEN = ("GET", "/v1/health")
_CACHED_FOR = timedelta(seconds=30)
"""As on AWS: a revoked key is accepted for up to that long."""
_MOST_CACHED = 1000

_log = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


class Gateway:
    """The WSGI application. Thread-safe.

    Args:
        api: The API's handler. It is called by one thread at a time, as in a Lambda function.
        authorizer: The handler that checks API keys.
        accept: Stores a script that was PUT to a URL; returns whether the URL allows that.
        now: The current instant.
    """

    def __init__(
        self,
        *,
        api: Handler,
        authorizer: Handler,
        accept: Callable[[str, bytes], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._authorizer = authorizer
        self._accept = accept
        self._now = now
        self._turn = threading.Lock()
        self._verdicts: dict[bytes, tuple[datetime, Mapping[str, Any]]] = {}

    def __call__(self, environ: Mapping[str, Any], start: StartResponse) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        response = self.answer(_request_of(environ))
        headers = [*response.headers, ("content-length", str(len(response.body)))]
        start(f"{response.status} {HTTPStatus(response.status).phrase}", headers)
        return [response.body]

    def await_turn(self) -> None:
        """Wait until the API's handler has ended, if it runs."""
        with self._turn:
            pass

    def answer(self, request: GatewayRequest) -> GatewayResponse:
        """Answer *request*: 401 without the header `Authorization`, 403 if the authorizer rejects
        it, 500 if a function fails.
        """
        request_id = uuid.uuid4().hex[:16]
        path = request.target.partition("?")[0]
        if path.startswith(UPLOADS):
            return self._upload(request, request_id)
        is_open = (request.method, path) == _OPEN
        route_key = " ".join(_OPEN) if is_open else "$default"
        event = event_of(request, now=self._now(), request_id=request_id, route_key=route_key)
        try:
            with self._turn:
                if not is_open:
                    verdict = self._verdict(event)
                    if verdict is None:
                        return _message(HTTPStatus.UNAUTHORIZED, "Unauthorized", request_id)
                    if not verdict["isAuthorized"]:
                        return _message(HTTPStatus.FORBIDDEN, "Forbidden", request_id)
                    event["requestContext"]["authorizer"] = {"lambda": verdict["context"]}
                return response_of(self._api(event, None), request_id)
        except Exception:  # noqa: BLE001 — the response says nothing, so the log does
            _log.exception("a function failed")  # as behind the gateway, this is a 500
            return _message(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error", request_id)

    def _verdict(self, event: dict[str, Any]) -> Mapping[str, Any] | None:
        """The authorizer's answer, at most 30 s old; None without the header `Authorization`."""
        authorization = event["headers"].get("authorization")
        if not authorization:
            return None
        now = self._now()
        name = sha256(authorization.encode()).digest()  # a header may have 256 KiB
        until, verdict = self._verdicts.get(name, (now, None))
        if verdict is None or not now < until <= now + _CACHED_FOR:
            verdict = self._authorizer({**event, "identitySource": [authorization]}, None)
            if len(self._verdicts) >= _MOST_CACHED:
                self._verdicts.clear()
            self._verdicts[name] = (now + _CACHED_FOR, verdict)
        return verdict

    def _upload(self, request: GatewayRequest, request_id: str) -> GatewayResponse:
        try:
            stored = request.method == "PUT" and self._accept(request.target, request.body)
        except UnavailableError as error:
            return _message(HTTPStatus.SERVICE_UNAVAILABLE, str(error), request_id)
        if not stored:
            text = (
                "Not stored: the URL has expired or was changed, or it was requested for another "
                "script. Request a new one with POST /v1/scripts/uploads, and PUT the same bytes "
                "to it."
            )
            return _message(HTTPStatus.FORBIDDEN, text, request_id)
        return GatewayResponse(HTTPStatus.OK, [("apigw-requestid", request_id)], b"")


def _request_of(environ: Mapping[str, Any]) -> GatewayRequest:
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in {"CONTENT_TYPE", "CONTENT_LENGTH"}
    ]
    return GatewayRequest(
        environ["REQUEST_METHOD"],
        environ["REQUEST_URI"],
        headers,
        environ["wsgi.input"].read(),
        environ["REMOTE_ADDR"],
    )


def _message(status: HTTPStatus, text: str, request_id: str) -> GatewayResponse:
    return response_of({"statusCode": status, "body": json.dumps({"message": text})}, request_id)
