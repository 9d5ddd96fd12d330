"""Successful responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response


def answer(
    document: Mapping[str, Any],
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    """Respond with *document* as JSON text, so that the resolver does not serialize it again."""
    body = json.dumps(document, separators=(",", ":"))
    return Response(status, "application/json", body, headers)


def page(items: list[dict[str, Any]], cursor: str | None) -> Response[str]:
    return answer({"items": items} if cursor is None else {"items": items, "cursor": cursor})
