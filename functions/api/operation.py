"""OpenAPI details of a route that its function signature does not express."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from nextfire.domain.keys import Scope
from nextfire.responses.base import ApiResponse
from nextfire.responses.jobs import JobResponse

SCOPE = "x-nextfire-scope"
"""OpenAPI extension: the scope that a route requires."""
OPEN = "none"
"""Value of `SCOPE` for a route that requires no scope."""
BY_LABEL = "x-nextfire-refused-by-label"
"""OpenAPI extension: why keys restricted by labels may not call a route, and what to do."""
NOT_STORED = "x-nextfire-not-stored"
"""OpenAPI extension: the response of a route holds a secret and is never stored."""
PROBLEMS = "x-nextfire-problems"
"""OpenAPI extension: statuses of errors that are specific to a route."""

WORKS_FOR = timedelta(seconds=15)
"""How long a route begins further parts of its work: API Gateway gives up on the API after 30 s."""

_ETAG = {
    "ETag": {"description": "Version of the job in this response.", "schema": {"type": "string"}}
}


def area() -> APIGatewayHttpRouter:
    """A router for one group of routes. The handler includes it."""
    return APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


RESPONSES: set[type[ApiResponse]] = set()
"""The responses of all routes."""


def _reference(response: type[ApiResponse] | None) -> dict[str, str]:
    if response is None:
        return {"type": "object"}
    RESPONSES.add(response)
    return {"$ref": f"#/components/schemas/{response.__name__}"}


def operation(
    summary: str,
    responses: Mapping[HTTPStatus, tuple[str, type[ApiResponse] | None]],
    *,
    scope: Scope | None = Scope.RUN,
    by_label: str | None = None,
    problems: tuple[HTTPStatus, ...] = (),
    secret: bool = False,
    more: str | None = None,
) -> dict[str, Any]:
    """The keyword arguments of a route.

    Args:
        summary: Title of the operation.
        responses: Description and class of the response for each success status.
        scope: Scope that a caller needs; None for an open route.
        by_label: Why a key restricted by labels is rejected, as the end of a sentence; None if it
            is not.
        problems: Error statuses in addition to those of every route.
        secret: The response is never stored; it is returned once.
        more: Further description for callers.
    """
    return {
        "summary": summary,
        "description": more,
        "responses": {
            int(status): {
                "description": said,
                "content": {"application/json": {"schema": _reference(response)}},
                **({"headers": _ETAG} if response and issubclass(response, JobResponse) else {}),
            }
            for status, (said, response) in responses.items()
        },
        "openapi_extensions": {
            SCOPE: OPEN if scope is None else scope.value,
            PROBLEMS: [int(status) for status in problems],
            **({NOT_STORED: True} if secret else {}),
            **({BY_LABEL: by_label} if by_label else {}),
        },
    }
