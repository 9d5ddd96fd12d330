"""Routes that create, pause, resume and delete many jobs at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, WithJsonSchema

from functions.api.app import caller, log_unreadable, tenant, undecodable, unexpected
from functions.api.idempotency import once, skip_storing_response
from functions.api.job_requests import CRON_JOB_EXAMPLE, SHORT_JOB_EXAMPLE, JobRequest, read_job
from functions.api.operation import WORKS_FOR, area, operation
from functions.api.problems import from_validation, problem_of
from functions.api.requests import PauseRequest, body_example, reading
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.definition import MAX_LABELS, LabelKey, LabelValue
from nextfire.domain.document import Document, document_error
from nextfire.domain.errors import InvalidInputError, NextfireError, UndecodableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.responses.jobs import JobResponse
from nextfire.responses.many_jobs import BatchResponse, BatchResult, ManyResponse, NotChanged
from nextfire.responses.problems import Problem
from nextfire.usecases.idempotent_requests import IdempotentRequest
from nextfire.usecases.many_jobs import BulkResult, LabelSelection, NewJob

MAX_BATCH_JOBS = 100


class BatchRequest(Document):
    """New jobs, in the long or the short form."""

    jobs: Annotated[
        list[Any],
        Field(min_length=1, max_length=MAX_BATCH_JOBS),
        WithJsonSchema(
            {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_BATCH_JOBS,
                "items": {
                    "anyOf": [
                        {"$ref": f"#/components/schemas/{form}"}
                        for form in ("JobRequest", "ShortJob")
                    ]
                },
            }
        ),
    ]


def _some(labels: dict[str, str]) -> dict[str, str]:
    if not labels:
        remedy = 'Name at least one. For example `{"team": "billing"}`.'
        raise document_error("labels", "names no label", remedy)
    return labels


def _labels_or_all(labels: dict[str, str] | None, info: ValidationInfo) -> dict[str, str] | None:
    if info.data.get("all_jobs"):
        if labels is not None:
            raise document_error("labels", "given with `allJobs`", "Send one of them.")
    elif not labels:
        problem = "required field is missing" if labels is None else "names no label"
        remedy = 'Name at least one. For example `{"team": "billing"}`. Or send `allJobs`: true.'
        raise document_error("missing" if labels is None else "labels", problem, remedy)
    return labels


class LabelledRequest(Document):
    """Selects the jobs that have all `labels`. `progressToken`: from the previous call."""

    labels: Annotated[
        dict[LabelKey, LabelValue],
        Field(max_length=MAX_LABELS, json_schema_extra={"minProperties": 1}),
        AfterValidator(_some),
    ]
    progress_token: Annotated[str, Field(max_length=1024)] | None = None


class SelectingRequest(Document):
    """Selects the jobs that have all `labels`, or with `allJobs` all jobs that the caller may
    access. `progressToken`: from the previous call.
    """

    all_jobs: Literal[True] | None = Field(
        default=None, description="All jobs; instead of `labels`."
    )
    labels: Annotated[
        dict[LabelKey, LabelValue] | None,
        Field(max_length=MAX_LABELS, json_schema_extra={"minProperties": 1}, validate_default=True),
        AfterValidator(_labels_or_all),
    ] = None
    progress_token: Annotated[str, Field(max_length=1024)] | None = None


class PauseManyRequest(PauseRequest, SelectingRequest):
    """Pause the jobs until `until`, or until they are resumed if `until` is absent."""


class ResumeManyRequest(SelectingRequest):
    """Resume the jobs that have all `labels`, or with `allJobs` all jobs."""


class CancelManyRequest(LabelledRequest):
    """Delete the jobs that have all `labels`."""


BatchBody = Annotated[
    BatchRequest,
    Body(openapi_examples=body_example({"jobs": [CRON_JOB_EXAMPLE, SHORT_JOB_EXAMPLE]})),
    reading(BatchRequest),
]
_LABELS = {"labels": {"team": "billing"}}
PauseManyBody = Annotated[
    PauseManyRequest,
    Body(openapi_examples=body_example({**_LABELS, "reason": "the ledger is closed"})),
    reading(PauseManyRequest),
]
ResumeManyBody = Annotated[
    ResumeManyRequest, Body(openapi_examples=body_example(_LABELS)), reading(ResumeManyRequest)
]
CancelManyBody = Annotated[
    CancelManyRequest, Body(openapi_examples=body_example(_LABELS)), reading(CancelManyRequest)
]


routes = area()
_DONE = {HTTPStatus.OK: ("The result.", ManyResponse)}
_MORE = (
    "A call processes up to 1,000 jobs in the order of their ids, for up to 15 s. If the response "
    "has a `progressToken`, send it with the next call to continue; without one, all jobs are done."
    " Calls are idempotent: jobs already in the requested state are matched but not changed. Jobs "
    "created less than about a second earlier may be missed. After a lost response, a retry with "
    "the same `Idempotency-Key` returns the result of the retry, which may be `changed: 0`."
)


@routes.post(
    "/v1/jobs:batch",
    **operation(
        "Create many jobs",
        {HTTPStatus.OK: ("The result for each job, in the order of the request.", BatchResponse)},
        more="Each job has the format of POST /v1/jobs. Parents are created before their children, "
        "in whatever order they are. Invalid jobs do not affect the others. The body is limited to "
        "256 KiB. A retry with the same `Idempotency-Key` does not create a job twice and tries "
        "failed jobs again.",
    ),
)
def create_jobs(request: BatchBody) -> Response[str]:
    asked = once()
    read = _read(request.jobs, asked)
    new = [each for each in read if isinstance(each, tuple)]
    done = iter(
        services().many_jobs.register(
            [job for job, _ in new], asked=asked, stop_at=now() + WORKS_FOR
        )
    )
    results = []
    for number, each in enumerate(read):
        outcome: Job | Exception
        if isinstance(each, tuple):
            outcome = next(done)
            if isinstance(outcome, NextfireError):
                outcome = each[1].as_spelled(outcome)
        else:
            outcome = each
        results.append(_result(number, outcome))
    if any("problem" in each.document for each in results):
        skip_storing_response()
    return respond(BatchResponse.of(results=results))


@routes.post(
    "/v1/jobs:pause",
    **operation("Pause all jobs, or those with some labels", _DONE, more=_MORE),
)
def pause_jobs(request: PauseManyBody) -> Response[str]:
    until, by = request.ends_at, caller().principal
    return _answer(
        request,
        lambda where: services().many_jobs.pause(where, reason=request.reason, until=until, by=by),
    )


@routes.post(
    "/v1/jobs:resume",
    **operation("Resume all jobs, or those with some labels", _DONE, more=_MORE),
)
def resume_jobs(request: ResumeManyBody) -> Response[str]:
    return _answer(request, services().many_jobs.resume)


@routes.post("/v1/jobs:cancel", **operation("Delete all jobs with some labels", _DONE, more=_MORE))
def cancel_jobs(request: CancelManyBody) -> Response[str]:
    return _answer(request, services().many_jobs.delete)


def _read(
    bodies: list[Any], asked: IdempotentRequest
) -> list[tuple[NewJob, JobRequest] | Exception]:
    """Parse *bodies*: for each, the job and its request, or the error."""
    of = tenant()
    read: list[tuple[NewJob, JobRequest] | Exception] = []
    ids: dict[str, int] = {}
    for number, body in enumerate(bodies):
        try:
            request = read_job(body)
            job_id = request.job_id or f"job_{asked.token(f'job {number}')}"
            if (first := ids.setdefault(job_id, number)) != number:
                raise InvalidInputError(
                    request.spelt.get("jobId", "jobId"),
                    job_id,
                    f"the id of jobs[{first}], too",
                    "Give each job a different id, or no id.",
                )
        except (ValidationError, NextfireError) as error:
            read.append(error)
            continue
        uid = asked.token(f"uid {number}")
        read.append((NewJob(JobKey(of, job_id), request.definition, uid), request))
    return read


def _result(number: int, outcome: Job | Exception) -> BatchResult:
    if isinstance(outcome, Job):
        return BatchResult.of(status=HTTPStatus.CREATED, job=JobResponse.of(outcome, now()))
    problem = _problem(outcome, f"jobs[{number}]")
    return BatchResult.of(status=problem.document["status"], problem=problem)


def _answer(
    request: LabelledRequest | SelectingRequest, act: Callable[[LabelSelection], BulkResult]
) -> Response[str]:
    labels, token = request.labels or {}, request.progress_token
    where = LabelSelection(tenant(), labels, token, now() + WORKS_FOR)
    try:
        done = act(where)
    except InvalidInputError as error:
        raise error.about({"cursor": "progressToken"}.get(error.field, error.field)) from error
    log_unreadable(done.unreadable)
    if done.failed:
        skip_storing_response()
    failed = [
        NotChanged.of(job_id=key.job_id, problem=_problem(error)) for key, error in done.failed
    ]
    return respond(ManyResponse.of(done, failed))


def _problem(error: Exception, place: str = "") -> Problem:
    """The problem that *error* is, which concerns only the part of the body at *place*."""
    if isinstance(error, UndecodableError):
        response = undecodable(error)
    elif isinstance(error, NextfireError):
        response = problem_of(error, place)
    elif isinstance(error, ValidationError):
        response = from_validation(error.errors(include_url=False), JobRequest, place)
    else:
        response = unexpected(error)
    return Problem(json.loads(response.body or "{}"))
