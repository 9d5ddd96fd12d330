"""OpenAPI details of a route that its function signature does not express."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from nextfire.domain.keys import Scope

SCOPE = "x-nextfire-scope"
"""OpenAPI extension: the scope that a route requires."""
OPEN = "none"
"""Value of `SCOPE` for a route that requires no scope."""
BY_LABEL = "x-nextfire-refused-by-label"
"""OpenAPI extension: why keys restricted by labels may not call a route, and what to do."""
TOLD_ONCE = "x-nextfire-told-once"
"""OpenAPI extension: the response of a route holds a secret and is never stored."""
PROBLEMS = "x-nextfire-problems"
"""OpenAPI extension: statuses of errors that are specific to a route."""

_ETAG = {
    "ETag": {"description": "Version of the job in this response.", "schema": {"type": "string"}}
}


def area() -> APIGatewayHttpRouter:
    """A router for one group of routes. The handler includes it."""
    return APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


ANSWERS: set[str] = set()
"""Names of all response models in `functions.api.answer_models`. Routes use names instead of
imports because only the OpenAPI document needs the classes.
"""


def _reference(model: str | None) -> dict[str, str]:
    if model is None:
        return {"type": "object"}
    ANSWERS.add(model)
    return {"$ref": f"#/components/schemas/{model}"}


def operation(
    summary: str,
    answers: Mapping[HTTPStatus, tuple[str, str | None]],
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
        answers: Description and model name of each success status.
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
                "content": {"application/json": {"schema": _reference(model)}},
                **({"headers": _ETAG} if model in {"JobAnswer", "JobDetail"} else {}),
            }
            for status, (said, model) in answers.items()
        },
        "openapi_extensions": {
            SCOPE: OPEN if scope is None else scope.value,
            PROBLEMS: [int(status) for status in problems],
            **({TOLD_ONCE: True} if secret else {}),
            **({BY_LABEL: by_label} if by_label else {}),
        },
    }
