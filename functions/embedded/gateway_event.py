"""Converts an HTTP request to the event of an API Gateway HTTP API (payload format 2.0), and the
response of the function to an HTTP response.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from nextfire.dataclass import dataclass

ACCOUNT = "000000000000"
_API = "embedded"
_STAGE = "$default"
_TEXTUAL = ("application/json", "application/javascript", "application/xml")


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """`target`: path and query as sent, percent-encoded. `headers`: names in any case."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str


@dataclass(frozen=True, slots=True)
class GatewayResponse:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


def event_of(
    request: GatewayRequest, *, now: datetime, request_id: str, route_key: str = "$default"
) -> dict[str, Any]:
    """The event of *request*, received at *now*, without an authorizer's context.

    As the gateway does it: names of headers in lower case, repeated headers and query parameters
    joined by commas, cookies apart, and the path decoded except for ``%25``. A body is text if its
    content type says so, otherwise base64.
    """
    raw_path, _, query = request.target.partition("?")
    path, headers = _decoded(raw_path), _joined((n.lower(), v) for n, v in request.headers)
    cookies = [each.strip() for each in headers.pop("cookie", "").split(";") if each.strip()]
    host = headers.get("host", "localhost")
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": _API,
            "domainName": host.rpartition(":")[0] or host,
            "domainPrefix": _API,
            "http": {
                "method": request.method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": request.source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": route_key,
            "stage": _STAGE,
            "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(now.timestamp() * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query:
        event["queryStringParameters"] = _joined(parse_qsl(query, keep_blank_values=True))
    if request.body:
        event |= _body(request.body, headers.get("content-type", ""))
    return event


def response_of(answer: Mapping[str, Any], request_id: str) -> GatewayResponse:
    """The HTTP response for the *answer* of the function: its status, headers, cookies and body."""
    headers = {str(n).lower(): str(v) for n, v in (answer.get("headers") or {}).items()}
    headers.setdefault("content-type", "application/json")
    headers["apigw-requestid"] = request_id
    cookies = [("set-cookie", str(each)) for each in answer.get("cookies") or ()]
    text = answer.get("body") or ""
    body = base64.b64decode(text) if answer.get("isBase64Encoded") else str(text).encode()
    return GatewayResponse(int(answer["statusCode"]), [*headers.items(), *cookies], body)


def _decoded(path: str) -> str:
    """*path* with all escapes decoded except ``%25``, as the gateway passes it."""
    return "%25".join(unquote(part) for part in path.split("%25"))


def _joined(pairs: Any) -> dict[str, str]:  # noqa: ANN401 — an iterable of pairs, from any source
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _body(body: bytes, content_type: str) -> dict[str, Any]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+json", "+xml")):
        try:
            return {"body": body.decode(), "isBase64Encoded": False}
        except UnicodeDecodeError:
            pass
    return {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
