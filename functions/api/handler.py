"""The HTTPS API as a Lambda function behind API Gateway: routes to use cases, answers as JSON."""

from __future__ import annotations

import gc

# What is imported stays: looking through it again and again is a sixth of a cold start.
gc.disable()

# ruff: noqa: E402
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from functions.api.app import app, telemetry
from functions.api.audit import audit
from functions.api.changing import changing
from functions.api.reach import nothing_reached
from functions.api.routes import (
    executions,
    jobs,
    keys,
    many_jobs,
    meta,
    on_request,
    pools,
    quotas,
    schedules,
    scripts,
)
from functions.api.seen import noting
from functions.api.trail import description, note_refusal

for area in (
    *(meta, jobs, many_jobs, on_request, schedules, executions, scripts, pools, keys, quotas),
):
    app.include_router(area.routes)
gc.freeze()
gc.enable()


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0)."""
    with (
        noting() as seen,
        nothing_reached(),
        changing(lambda: description(event)) as request,
    ):
        answer = app.resolve(event, context)
    note_refusal(event, answer, request)
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
