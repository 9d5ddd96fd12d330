"""The result of an HTTP callback: from a response, or from the failure to get one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from nextfire.dataclass import replace
from nextfire.domain.attempt import MAX_CALL_BYTES, AttemptOutcome, Result
from nextfire.domain.json_text import compact_json
from nextfire.domain.masking import MASK, Masker
from nextfire.domain.ports.targets import AttemptResult
from nextfire.targets import json_values
from nextfire.targets.http.addresses import DEFAULT_PORTS
from nextfire.targets.http.document import ApiKeyAuth, HttpCall
from nextfire.targets.http.messages import (
    CallFailedError,
    Failure,
    Request,
    Response,
    Timings,
)
from nextfire.targets.http.retry_after import retry_at

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
_NO_CONNECTION = frozenset({Failure.NAME, Failure.CONNECT, Failure.BUSY})
_SIGNATURE = "webhook-signature"
_CREDENTIALS = frozenset({"authorization", "x-amz-security-token", _SIGNATURE})
"""Headers of requests whose values are never recorded: a signature can be used by others, too."""
_CUT: tuple[tuple[tuple[str, ...], int], ...] = (
    (("request", "body"), 128),
    (("body",), 128),
    (("request", "headers"), 32),
    (("body",), 0),
    (("headers",), 0),
    (("request", "body"), 0),
    (("request",), 0),
)
"""What is cut of a record that is too long, in this order, and to how many characters."""
_TEXT = ("text/", "application/json", "application/xml", "application/problem+json")


def result_of(
    call: HttpCall, request: Request, response: Response, masker: Masker, now: datetime
) -> AttemptResult:
    """The result of *response* to *request*."""
    if response.truncated:
        response = replace(response, body=masker.cut(response.body))
    status = response.status
    record = _record(call, request, response, masker)
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
        permanent=pause is not None,
        retry_at=retry_at(response.headers, now),
        unavailable=status in UNAVAILABLE,
        pause=pause,
    )
    return AttemptResult(failed)


def result_without_response(
    call: HttpCall, request: Request, error: CallFailedError, masker: Masker
) -> AttemptResult:
    """The result of a call without a response."""
    outcome = (
        AttemptOutcome.TIMED_OUT if error.problem is Failure.TIMEOUT else AttemptOutcome.FAILED
    )
    record = _encode(
        {
            **_sent(call, request, masker),
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
        permanent=error.problem is Failure.FORBIDDEN,
        unavailable=is_unavailable(error),
    )
    return AttemptResult(failed)


def is_unavailable(error: CallFailedError) -> bool:
    """Whether nothing was sent because the destination could not be reached."""
    in_vain = error.problem is Failure.TIMEOUT and not error.sent
    return in_vain or error.problem in _NO_CONNECTION


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


def _record(call: HttpCall, request: Request, response: Response, masker: Masker) -> str:
    headers = _headers(response.headers, masker)
    is_text = headers.get("content-type", "text/").lower().startswith(_TEXT)
    # Masked before it is cut: a part of a secret would not be recognized.
    body = masker.text(response.body.decode(errors="replace")) if is_text else ""
    return _encode(
        {
            **_sent(call, request, masker),
            "status": response.status,
            "headers": headers,
            "body": body[:_MAX_BODY],
            "address": response.address,
            "timingsMs": _milliseconds(response.timings),
        }
    )


def _sent(call: HttpCall, request: Request, masker: Masker) -> dict[str, Any]:
    parts = urlsplit(request.url)
    query = "?…" if parts.query else ""
    sent: dict[str, Any] = {
        "method": request.method,
        "url": f"{_origin(request.url)}{parts.path}{query}"[:256],
        "digest": request.digest,
    }
    if call.record_request:
        sent["request"] = _request(call, request, masker)
    return sent


def _request(call: HttpCall, request: Request, masker: Masker) -> dict[str, Any]:
    """The headers of *request* and the start of its body, without secrets."""
    own = {call.auth.header.lower()} if isinstance(call.auth, ApiKeyAuth) else set[str]()
    headers = {
        name: MASK
        if name.lower() in own
        else _without_credentials(name.lower(), value)
        if name.lower() in _CREDENTIALS
        else masker.text(value)[:_MAX_HEADER]
        for name, value in request.headers.items()
    }
    body = masker.text(request.body.decode(errors="replace"))[:_MAX_BODY]
    return {"headers": headers, "body": body}


def _without_credentials(name: str, value: str) -> str:
    if name == _SIGNATURE:  # of each of several secrets, after its version
        return " ".join(f"{each.partition(',')[0]},{MASK}" for each in value.split())
    scheme, space, _ = value.partition(" ")
    return f"{scheme} {MASK}" if space else MASK


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
    """*record* as JSON. If it exceeds `MAX_CALL_BYTES`, its longest parts are cut."""
    kept = {name: value for name, value in record.items() if value not in (None, "", {})}
    cuts = iter(_CUT)
    while True:
        text = compact_json(kept)
        data = text.encode(errors="replace")
        cut = next(cuts, None) if len(data) > MAX_CALL_BYTES else None
        if cut is None:
            return data.decode()
        kept = _shortened(kept, *cut) | {"cut": True}


def _shortened(record: dict[str, Any], path: tuple[str, ...], most: int) -> dict[str, Any]:
    """*record* with the texts at *path* cut to *most* characters; without that part if 0."""
    name, *inner = path
    value = record.get(name)
    if value is None or (inner and not isinstance(value, dict)):
        return record
    if inner:
        return {**record, name: _shortened(value, tuple(inner), most)}
    if most == 0:
        return {each: value for each, value in record.items() if each != name}
    if isinstance(value, dict):
        return {**record, name: {each: str(text)[:most] for each, text in value.items()}}
    return {**record, name: str(value)[:most]}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
