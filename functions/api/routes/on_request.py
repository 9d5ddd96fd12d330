"""Routes for runs outside the schedule of a job: run now, skip, backfill."""

from __future__ import annotations

import json
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer
from functions.api.app import now, services, tenant
from functions.api.documents import (
    backfill_document,
    execution_document,
)
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import (
    BackfillBody,
    IfMatch,
    JobId,
    RunNowBody,
    RunNowRequest,
    SkipBody,
    SkipRequest,
    versions,
)
from functions.api.routes.jobs import job_answer
from nextfire.domain.ids import JobKey

routes = area()
_JOB = {HTTPStatus.OK: ("The job.", "JobAnswer")}
_CONFLICT = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


@routes.post(
    "/v1/jobs/<job_id>/run",
    **operation(
        "Run a job now",
        {HTTPStatus.CREATED: ("The execution is stored and will start.", "ExecutionAnswer")},
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


@routes.post(
    "/v1/jobs/<job_id>/skip-next",
    **operation("Skip a job's next occurrence", _JOB, problems=_CONFLICT),
)
def skip_next(
    job_id: JobId,
    request: SkipBody = SkipRequest(),  # noqa: B008 — immutable
    if_match: IfMatch = None,
) -> Response[str]:
    key = JobKey(tenant(), job_id)
    expected = versions(if_match)
    job = services().executions.skip_next(
        key, request.reason, asked_at=once().first_sent_at, expected=expected
    )
    return job_answer(job)


@routes.delete(
    "/v1/jobs/<job_id>/skip-next",
    **operation("Undo the skip of a job's next occurrence", _JOB, problems=_CONFLICT),
)
def undo_skip_next(job_id: JobId, if_match: IfMatch = None) -> Response[str]:
    key = JobKey(tenant(), job_id)
    return job_answer(services().executions.unskip(key, expected=versions(if_match)))


@routes.post(
    "/v1/jobs/<job_id>/backfill",
    **operation(
        "Run past occurrences that have no execution record",
        {
            HTTPStatus.ACCEPTED: (
                "The backfill is accepted. It runs a few occurrences at a time.",
                "BackfillAnswer",
            )
        },
        problems=_CONFLICT,
    ),
)
def begin_backfill(job_id: JobId, request: BackfillBody, if_match: IfMatch = None) -> Response[str]:
    job, begun = services().backfills.begin(
        JobKey(tenant(), job_id),
        request.wanted,
        backfill_id=once().token("backfill"),
        asked_at=once().at,
        now=now(),
        expected=versions(if_match),
    )
    return answer(backfill_document(job, begun), HTTPStatus.ACCEPTED)


@routes.delete(
    "/v1/jobs/<job_id>/backfill",
    **operation("Stop a job's backfill", _JOB, problems=(HTTPStatus.PRECONDITION_FAILED,)),
)
def stop_backfill(job_id: JobId, if_match: IfMatch = None) -> Response[str]:
    key = JobKey(tenant(), job_id)
    return job_answer(services().backfills.stop(key, now=now(), expected=versions(if_match)))


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
