"""Route for the quotas of the caller's tenant."""

from __future__ import annotations

from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.app import tenant
from functions.api.operation import area, operation
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.keys import Scope
from nextfire.responses.quotas import QuotasResponse

routes = area()


@routes.get(
    "/v1/quotas",
    **operation(
        "Get your quotas",
        {HTTPStatus.OK: ("Your quotas and their usage.", QuotasResponse)},
        scope=Scope.READ,
    ),
)
def get_quotas() -> Response[str]:
    return respond(QuotasResponse.of(services().quotas.of(tenant(), now())))
