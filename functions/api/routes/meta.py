"""Routes for health and the OpenAPI document."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.operation import area, operation
from functions.api.respond import respond, respond_json
from functions.api.services import now
from nextfire.domain.keys import Scope
from nextfire.responses.meta import Health

routes = area()


@cache
def _description() -> Response[str]:
    from functions.api.openapi import description  # noqa: PLC0415 — it describes these routes too

    return respond_json(description())


@routes.get(
    "/v1/openapi.json",
    **operation(
        "Get the OpenAPI document",
        {HTTPStatus.OK: ("The OpenAPI document.", None)},
        scope=Scope.READ,
    ),
)
def get_description() -> Response[str]:
    return _description()


@routes.get(
    "/v1/health",
    **operation(
        "Check that the API is up", {HTTPStatus.OK: ("The API is up.", Health)}, scope=None
    ),
)
def get_health() -> Response[str]:
    return respond(Health.of(status="ok", time=now()))
