"""The API about itself."""

from __future__ import annotations

from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer
from functions.api.app import now
from functions.api.documents import Health
from functions.api.operation import area, operation
from nextfire.domain.instants import isoformat

routes = area()


@routes.get(
    "/v1/health",
    **operation("Tell whether the API is there", {HTTPStatus.OK: ("It is.", Health)}, scope=None),
)
def get_health() -> Response[str]:
    return answer({"status": "ok", "time": isoformat(now())})
