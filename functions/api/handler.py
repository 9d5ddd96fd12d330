"""The HTTPS API as a Lambda function behind API Gateway: routes to use cases, answers as JSON."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from functions.api.app import app, telemetry
from functions.api.audit import audit
from functions.api.routes import (
    executions,
    jobs,
    keys,
    many_jobs,
    meta,
    on_request,
    pools,
    schedules,
    scripts,
)
from functions.api.seen import noting

for area in (meta, jobs, many_jobs, on_request, schedules, executions, scripts, pools, keys):
    app.include_router(area.routes)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0)."""
    with noting() as seen:
        answer = app.resolve(event, context)
    audit(event, answer, seen)
    http = event["requestContext"]["http"]
    telemetry.logger.info(
        "request",
        method=http["method"],
        path=http["path"],
        status=answer["statusCode"],
        request_id=event["requestContext"].get("requestId"),
    )
    return answer
