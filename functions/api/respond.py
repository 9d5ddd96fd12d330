"""Successful responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from nextfire.responses.base import ApiResponse


def respond(
    response: ApiResponse,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    """Respond with the document of *response*."""
    return respond_json(response.document, status, headers)


def respond_json(
    document: Mapping[str, object],
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    """Respond with *document* as JSON text, so that the resolver does not serialize it again."""
    body = json.dumps(document, separators=(",", ":"))
    return Response(status, "application/json", body, headers)
