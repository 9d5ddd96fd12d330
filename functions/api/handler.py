"""The HTTPS API as a Lambda function behind API Gateway: routes requests to use cases."""

from __future__ import annotations

import gc

# Garbage collection during the imports takes a sixth of the startup CPU, and imports live on.
gc.disable()

# ruff: noqa: E402
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from functions.api.access import without_access
from functions.api.app import app
from functions.api.areas import include, include_for
from functions.api.audit import audit
from functions.api.audit_trail import description, note_rejection
from functions.api.current_request import changing
from functions.api.request_record import noting
from functions.api.services import telemetry

include("jobs")
gc.freeze()
gc.enable()


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Handle one HTTP request (payload format 2.0)."""
    include_for(event["rawPath"])
    with (
        noting() as record,
        without_access(),
        changing(lambda: description(event)) as request,
    ):
        answer = app.resolve(event, context)
    telemetry.flush()
    note_rejection(event, answer, request)
    audit(event, answer, record)
    http = event["requestContext"]["http"]
    telemetry.logger.info(
        "request",
        method=http["method"],
        path=http["path"],
        status=answer["statusCode"],
        request_id=event["requestContext"].get("requestId"),
    )
    return answer
