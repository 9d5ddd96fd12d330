"""Logs requests and responses on the logger `nextfire.client` at level DEBUG, without secrets."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2

LOGGER = logging.getLogger("nextfire.client")
HIDDEN = "(hidden)"
_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-amz-security-token", "cookie", "set-cookie"}
)
_FIELDS = re.compile(
    r"key|payload|params|env|headers|body|fields"
    r"|.*(?:secret|token|password|passwd|credential|signature|authorization|api_?key).*",
    re.IGNORECASE,
)
"""Names of JSON members whose values are hidden, complete ones."""
_KEY = re.compile(r"\b(nfk?)[_.][\w.-]+")
"""API keys, in any text."""
_SIGNED = re.compile(
    r"(X-Amz-(?:Signature|Credential|Security-Token)|sig|signature)=[^&\s\"]*", re.IGNORECASE
)
"""Parameters of signed URLs."""
_BEGAN = "nextfire.began"


def hooks() -> dict[str, list[Callable[..., Any]]]:
    """The event hooks of an `httpx2.Client` whose exchanges are logged."""
    return {"request": [_request], "response": [_response]}


def _request(request: httpx2.Request) -> None:
    if LOGGER.isEnabledFor(logging.DEBUG):
        request.extensions[_BEGAN] = time.monotonic()
        first = f"{request.method} {_without_keys(str(request.url))}"
        LOGGER.debug(_text(">", first, request.headers, request.content))


def _response(response: httpx2.Response) -> None:
    if LOGGER.isEnabledFor(logging.DEBUG):
        content = response.read()
        took = time.monotonic() - response.request.extensions.get(_BEGAN, time.monotonic())
        first = f"{response.status_code} {response.reason_phrase} ({took * 1000:.0f} ms)"
        LOGGER.debug(_text("<", first, response.headers, content))


def _text(mark: str, first: str, headers: Mapping[str, str], content: bytes) -> str:
    return "\n".join(
        f"{mark} {line}" for line in (first, *_headers(headers), *_body(headers, content))
    )


def _headers(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        yield f"{name}: {HIDDEN if name.lower() in _HEADERS else _without_keys(value)}"


def _body(headers: Mapping[str, str], content: bytes) -> Iterator[str]:
    if not content:
        return
    try:
        document = json.loads(content) if "json" in headers.get("Content-Type", "") else None
        shown = None if document is None else json.dumps(_hidden(document), ensure_ascii=False)
    except ValueError:
        shown = None
    except RecursionError:
        yield f"({len(content)} bytes that are not shown)"
        return
    yield f"({len(content)} bytes that are not JSON)" if shown is None else shown


def _hidden(value: Any) -> Any:  # noqa: ANN401 — any JSON
    """*value* without secrets."""
    if isinstance(value, dict):
        return {
            name: HIDDEN if _FIELDS.fullmatch(name) and inner else _hidden(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    return _without_keys(value) if isinstance(value, str) else value


def _without_keys(text: str) -> str:
    return _KEY.sub(rf"\1_{HIDDEN}", _SIGNED.sub(rf"\1={HIDDEN}", text))
