"""Many jobs at a time: made, paused, resumed, cancelled."""

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
_DONE = {HTTPStatus.OK: ("What was done.", "ManyAnswer")}
_MORE = (
    "A call looks at 1,000 jobs, in the order of their ids, or as many as it can in 15 s. With its "
    "`progressToken` the next call goes on; without one all is done. It may be repeated: what is "
    "so already is matched, and not changed. A job that was made less than about a second before "
    "may be missed. After a lost answer, a call that comes again under its `Idempotency-Key` tells "
    "what it then found and did, which may be `changed: 0`."
)


@routes.post(
    "/v1/jobs:batch",
    **operation(
        "Create many jobs",
        {HTTPStatus.OK: ("What became of each, in their order.", "BatchAnswer")},
        more="Each is as for POST /v1/jobs, and one that cannot be stored hinders no other. The "
        "whole body may have 256 KiB. With an `Idempotency-Key` a request that comes again makes "
        "no job twice, and what failed is tried again.",
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
    """The jobs that *bodies* describe, each with its request, or why one describes none."""
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
                    "Give each job an id of its own, or none.",
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
    """The problem document of *error*, which is of what stands at *place* of the body alone."""
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
