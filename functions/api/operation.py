"""What the description of the API says of a route beside what its function's signature says."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from nextfire.domain.keys import Scope

SCOPE = "x-nextfire-scope"
"""The extension that says which scope a route needs."""
OPEN = "none"
"""Of a route that needs none."""
BY_LABEL = "x-nextfire-refused-by-label"
"""The extension of a route that a key restricted by labels may not call: why, and what to do."""
TOLD_ONCE = "x-nextfire-told-once"
"""The extension of a route whose answer holds what is kept nowhere."""
PROBLEMS = "x-nextfire-problems"
"""The statuses of the problems that only some routes have. The description lists what they are."""

_ETAG = {"ETag": {"description": "Of this state of the job.", "schema": {"type": "string"}}}


def area() -> APIGatewayHttpRouter:
    """The routes of one area, to be included by the handler."""
    return APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


ANSWERS: set[str] = set()
"""Names of the models of all answers, in `functions.api.answer_models`. Routes name them instead of
importing them: only the description of the API needs the classes.
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
    """The arguments of a route. *scope*: what a caller needs; None: the route is open. *by_label*:
    why a key that is restricted by labels is refused, as the end of a sentence; None: it is not.
    *answers*: of each status that is not a problem, what its document is: a model's name.
    *problems*: beside those of any route. *secret*: the answer is kept nowhere, so it is told once.
    *more*: what a caller has to know beside that.
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
