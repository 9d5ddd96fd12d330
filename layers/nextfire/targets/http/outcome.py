"""The result of an HTTP callback: from a response, or from the failure to get one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from nextfire.domain.masking import Masker
from nextfire.domain.ports.targets import AttemptResult
from nextfire.domain.run import MAX_CALL_BYTES, AttemptOutcome, Result
from nextfire.targets import json_values
from nextfire.targets.http.addresses import DEFAULT_PORTS
from nextfire.targets.http.document import HttpCall
from nextfire.targets.http.retry_after import retry_at
from nextfire.targets.http.transport import CallFailedError, Problem, Request, Response, Timings

UNAVAILABLE = frozenset({429, 502, 503, 504})
"""Throttles: the destination does not accept the call now."""
GONE = 410
_SHOWN = frozenset(
    {
        *("content-type", "content-length", "retry-after", "location", "date", "server"),
        *("x-request-id", "x-correlation-id", "x-amzn-requestid", "x-amz-request-id", "cf-ray"),
    }
)
_MAX_HEADER = 128
_MAX_BODY = 512
_NOT_SENT = frozenset({Problem.NAME, Problem.CONNECT})
_TEXT = ("text/", "application/json", "application/xml", "application/problem+json")


def result_of(
    call: HttpCall, request: Request, response: Response, masker: Masker, now: datetime
) -> AttemptResult:
    """The result of *response* to *request*."""
    status = response.status
    record = _record(request, response, masker)
    reason = f"{status} {_phrase(status)}".strip()
    if call.succeeds(status):
        return AttemptResult(
            Result(AttemptOutcome.SUCCEEDED, reason, call=record), given=_given(response, masker)
        )
    pause = None
    if status == GONE:
        reason = "410 Gone: the receiver wants no more callbacks"
        pause = f"{reason} ({_origin(request.url)})"
    elif 300 <= status < 400:  # noqa: PLR2004 - redirection
        reason = f"{reason}: redirects are not followed"
    failed = Result(
        AttemptOutcome.FAILED,
        reason,
        call=record,
        retry_at=retry_at(response.headers, now),
        unavailable=status in UNAVAILABLE,
        pause=pause,
    )
    return AttemptResult(failed)


def result_without_response(
    request: Request, error: CallFailedError, masker: Masker
) -> AttemptResult:
    """The result of a call without a response."""
    outcome = (
        AttemptOutcome.TIMED_OUT if error.problem is Problem.TIMEOUT else AttemptOutcome.FAILED
    )
    record = _encode(
        {
            **_sent(request),
            "problem": error.problem.value,
            "sent": error.sent,
            "address": error.address,
            "timingsMs": _milliseconds(error.timings),
        }
    )
    failed = Result(
        outcome,
        masker.text(error.text),
        call=record,
        permanent=error.problem is Problem.FORBIDDEN,
        unavailable=error.problem in _NOT_SENT,
    )
    return AttemptResult(failed)


def destination_of(url: str) -> str:
    """Return `host:port` of *url*: what is available or not, whatever the path."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    port = parts.port or DEFAULT_PORTS.get(parts.scheme, 443)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _given(response: Response, masker: Masker) -> bytes:
    """The JSON result of a run that SUCCEEDED."""
    document = {
        "status": response.status,
        "headers": _headers(response.headers, masker),
        "body": _body(response.body),
    }
    if response.truncated:
        document["truncated"] = True
    return masker.json(json.dumps(document, ensure_ascii=False).encode(errors="replace"))


def _body(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """The JSON value of *body*, or its text."""
    try:
        return json_values.read(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _record(request: Request, response: Response, masker: Masker) -> str:
    headers = _headers(response.headers, masker)
    is_text = headers.get("content-type", "text/").lower().startswith(_TEXT)
    body = masker.text(response.body[: 4 * _MAX_BODY].decode(errors="replace")) if is_text else ""
    return _encode(
        {
            **_sent(request),
            "status": response.status,
            "headers": headers,
            "body": body[:_MAX_BODY],
            "address": response.address,
            "timingsMs": _milliseconds(response.timings),
        }
    )


def _sent(request: Request) -> dict[str, Any]:
    parts = urlsplit(request.url)
    query = "?…" if parts.query else ""
    return {"method": request.method, "url": f"{_origin(request.url)}{parts.path}{query}"[:256]}


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _headers(headers: Iterable[tuple[str, str]], masker: Masker) -> dict[str, str]:
    return {
        name.lower(): masker.text(value)[:_MAX_HEADER]
        for name, value in headers
        if name.lower() in _SHOWN
    }


def _milliseconds(timings: Timings) -> dict[str, float]:
    found = {
        "dns": timings.dns,
        "connect": timings.connect,
        "tls": timings.tls,
        "firstByte": timings.first_byte,
        "total": timings.total,
    }
    return {name: round(value * 1000, 1) for name, value in found.items() if value is not None}


def _encode(record: dict[str, Any]) -> str:
    """*record* as JSON; without its body and headers if it exceeds `MAX_CALL_BYTES`."""
    kept = {name: value for name, value in record.items() if value not in (None, "", {})}
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    data = text.encode(errors="replace")
    if len(data) > MAX_CALL_BYTES and kept.keys() & {"body", "headers"}:
        least = "body" if "body" in kept else "headers"
        return _encode({name: value for name, value in kept.items() if name != least})
    return data.decode()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
