"""Routes that create, pause, resume and delete many jobs at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import ValidationError

from functions.api.answers import answer
from functions.api.app import log_unreadable, now, services, tenant, undecodable, unexpected
from functions.api.documents import job_document
from functions.api.idempotency import keep_no_answer, once
from functions.api.operation import area, operation
from functions.api.problems import from_validation, problem_of
from functions.api.requests import (
    BatchBody,
    CancelManyBody,
    JobRequest,
    LabelledRequest,
    PauseManyBody,
    ResumeManyBody,
    read_job,
)
from nextfire.domain.errors import InvalidInputError, NextfireError, UndecodableError
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.usecases.idempotent_requests import IdempotentRequest
from nextfire.usecases.many_jobs import BulkResult, LabelSelection, NewJob

routes = area()
_WORKS_FOR = timedelta(seconds=15)
"""API Gateway gives up on the API after 30 s."""
_DONE = {HTTPStatus.OK: ("The result.", "ManyAnswer")}
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
        {HTTPStatus.OK: ("The result for each job, in the order of the request.", "BatchAnswer")},
        more="Each job has the format of POST /v1/jobs. Invalid jobs do not affect the others. The "
        "body is limited to 256 KiB. A retry with the same `Idempotency-Key` does not create a "
        "job twice and tries failed jobs again.",
    ),
)
def create_jobs(request: BatchBody) -> Response[str]:
    asked = once()
    read = _read(request.jobs, asked)
    new = [each for each in read if isinstance(each, tuple)]
    done = iter(
        services().many_jobs.register(
            [job for job, _ in new], asked=asked, stop_at=now() + _WORKS_FOR
        )
    )
    results = []
    for number, each in enumerate(read):
        outcome: Job | Exception
        if isinstance(each, tuple):
            outcome, request_of = next(done), each[1]
            if isinstance(outcome, InvalidInputError):
                outcome = outcome.about(request_of.spelt.get(outcome.field, outcome.field))
        else:
            outcome = each
        results.append(_result(number, outcome))
    if any("problem" in result for result in results):
        keep_no_answer()
    return answer({"results": results})


@routes.post("/v1/jobs:pause", **operation("Pause all jobs with some labels", _DONE, more=_MORE))
def pause_jobs(request: PauseManyBody) -> Response[str]:
    until = request.ends_at
    return _answer(
        request,
        lambda where: services().many_jobs.pause(where, reason=request.reason, until=until),
    )


@routes.post("/v1/jobs:resume", **operation("Resume all jobs with some labels", _DONE, more=_MORE))
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


def _result(number: int, outcome: Job | Exception) -> dict[str, Any]:
    if isinstance(outcome, Job):
        return {"status": int(HTTPStatus.CREATED), "job": job_document(outcome, now())}
    document = _problem(outcome, f"jobs[{number}]")
    return {"status": document["status"], "problem": document}


def _answer(request: LabelledRequest, act: Callable[[LabelSelection], BulkResult]) -> Response[str]:
    where = LabelSelection(tenant(), request.labels, request.progress_token, now() + _WORKS_FOR)
    try:
        done = act(where)
    except InvalidInputError as error:
        raise error.about({"cursor": "progressToken"}.get(error.field, error.field)) from error
    log_unreadable(done.unreadable)
    if done.failed:
        keep_no_answer()
    document: dict[str, Any] = {
        "matched": done.matched,
        "changed": done.changed,
        "failed": [{"jobId": key.job_id, "problem": _problem(error)} for key, error in done.failed],
    }
    return answer(document if done.cursor is None else document | {"progressToken": done.cursor})


def _problem(error: Exception, place: str = "") -> dict[str, Any]:
    """The problem document of *error*, which concerns only the part of the body at *place*."""
    if isinstance(error, UndecodableError):
        response = undecodable(error)
    elif isinstance(error, NextfireError):
        response = problem_of(error, place)
    elif isinstance(error, ValidationError):
        response = from_validation(error.errors(include_url=False), JobRequest, place)
    else:
        response = unexpected(error)
    document: dict[str, Any] = json.loads(response.body or "{}")
    return document
