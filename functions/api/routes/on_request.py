"""Routes for runs outside the schedule of a job: run now, skip, backfill."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import Field, JsonValue

from functions.api.app import tenant
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.preconditions import IfMatch, versions
from functions.api.requests import (
    REASON_EXAMPLE,
    UTC_NOTE,
    JobId,
    Reason,
    body_example,
    read_utc,
    reading,
)
from functions.api.respond import respond
from functions.api.routes.jobs import respond_job
from functions.api.services import now, services
from nextfire.domain.backfill import MOST, Order
from nextfire.domain.document import Document
from nextfire.domain.ids import JobKey
from nextfire.domain.json_text import compact_json
from nextfire.domain.when import InstantText
from nextfire.responses.executions import ExecutionResponse
from nextfire.responses.jobs import BackfillResponse, JobResponse
from nextfire.usecases.manage_backfills import BackfillRange


class RunNowRequest(Document):
    """Run a job now. `payload`, if present, replaces that of the job, even if it is null."""

    payload: JsonValue = None
    reason: Reason = None


class SkipRequest(Document):
    """Skip the next occurrence."""

    reason: Reason = None


class BackfillRequest(Document):
    """Run the past occurrences at or after `from` and before `to`. The request is rejected if there
    are more than `max`.
    """

    from_: InstantText = Field(
        alias="from",
        description=f"Start of the range, inclusive. {UTC_NOTE}",
        examples=["2026-05-01T00:00:00Z"],
    )
    to: InstantText = Field(
        description=f"End of the range, exclusive. {UTC_NOTE}", examples=["2026-05-03T00:00:00Z"]
    )
    max: Annotated[int, Field(strict=True, ge=1, le=MOST)] = MOST
    order: Order = Order.OLDEST_FIRST
    reason: Reason = None

    @property
    def wanted(self) -> BackfillRange:
        """Raises:
        InvalidInputError: `from` or `to` is not an instant.
        """
        return BackfillRange(
            read_utc(self.from_, "from"),
            read_utc(self.to, "to"),
            self.max,
            self.order,
            self.reason,
        )


RunNowBody = Annotated[
    RunNowRequest,
    Body(
        openapi_examples=body_example({"payload": {"customer": "acme"}, "reason": "it was wrong"})
    ),
    reading(RunNowRequest),
]
SkipBody = Annotated[SkipRequest, Body(openapi_examples=REASON_EXAMPLE), reading(SkipRequest)]
BackfillBody = Annotated[
    BackfillRequest,
    Body(
        openapi_examples=body_example(
            {"from": "2026-05-01T00:00:00Z", "to": "2026-05-03T00:00:00Z", "reason": "a new job"}
        )
    ),
    reading(BackfillRequest),
]


routes = area()
_JOB = {HTTPStatus.OK: ("The job.", JobResponse)}
_CONFLICT = (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED)


@routes.post(
    "/v1/jobs/<job_id>/run",
    **operation(
        "Run a job now",
        {HTTPStatus.CREATED: ("The execution is stored and will start.", ExecutionResponse)},
        problems=(HTTPStatus.CONFLICT,),
    ),
)
def run_job(job_id: JobId, request: RunNowBody = RunNowRequest()) -> Response[str]:  # noqa: B008 — immutable
    run = services().request_runs.run_now(
        JobKey(tenant(), job_id),
        payload=compact_json(request.payload) if "payload" in request.model_fields_set else None,
        reason=request.reason,
        request=once().token("run"),
        asked_at=once().at,
    )
    return respond(ExecutionResponse.of(run), HTTPStatus.CREATED)


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
    job = services().skips.skip_next(
        key, request.reason, asked_at=once().first_sent_at, expected=expected
    )
    return respond_job(job)


@routes.delete(
    "/v1/jobs/<job_id>/skip-next",
    **operation("Undo the skip of a job's next occurrence", _JOB, problems=_CONFLICT),
)
def undo_skip_next(job_id: JobId, if_match: IfMatch = None) -> Response[str]:
    key = JobKey(tenant(), job_id)
    return respond_job(services().skips.unskip(key, expected=versions(if_match)))


@routes.post(
    "/v1/jobs/<job_id>/backfill",
    **operation(
        "Run past occurrences that have no execution record",
        {
            HTTPStatus.ACCEPTED: (
                "The backfill is accepted. It runs a few occurrences at a time.",
                BackfillResponse,
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
    return respond(BackfillResponse.of(begun, job), HTTPStatus.ACCEPTED)


@routes.delete(
    "/v1/jobs/<job_id>/backfill",
    **operation("Stop a job's backfill", _JOB, problems=(HTTPStatus.PRECONDITION_FAILED,)),
)
def stop_backfill(job_id: JobId, if_match: IfMatch = None) -> Response[str]:
    key = JobKey(tenant(), job_id)
    return respond_job(services().backfills.stop(key, now=now(), expected=versions(if_match)))
