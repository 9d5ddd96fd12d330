"""What people ask for beside a job's schedule."""

from __future__ import annotations

import json
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer
from functions.api.app import services, tenant
from functions.api.documents import ExecutionAnswer, execution_document
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import JobId, RunNowBody, RunNowRequest
from nextfire.domain.ids import JobKey

routes = area()


@routes.post(
    "/v1/jobs/<job_id>/run",
    **operation(
        "Run a job now",
        {HTTPStatus.CREATED: ("The execution is stored, and will start.", ExecutionAnswer)},
        problems=(HTTPStatus.CONFLICT,),
    ),
)
def run_job(job_id: JobId, request: RunNowBody = RunNowRequest()) -> Response[str]:  # noqa: B008 — immutable
    run = services().executions.run_now(
        JobKey(tenant(), job_id),
        payload=_as_json(request.payload) if "payload" in request.model_fields_set else None,
        reason=request.reason,
        request=once().token("run"),
        asked_at=once().at,
    )
    return answer(execution_document(run), HTTPStatus.CREATED)


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
