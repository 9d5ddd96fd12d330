"""Route for the quotas of the caller's tenant."""

from __future__ import annotations

from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer
from functions.api.app import now, services, tenant
from functions.api.documents import quotas_document
from functions.api.operation import area, operation
from nextfire.domain.keys import Scope

routes = area()


@routes.get(
    "/v1/quotas",
    **operation(
        "Get your quotas",
        {HTTPStatus.OK: ("Your quotas and their usage.", "QuotasAnswer")},
        scope=Scope.READ,
    ),
)
def get_quotas() -> Response[str]:
    return answer(quotas_document(services().quotas.of(tenant(), now())))
