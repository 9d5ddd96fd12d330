"""Routes that create, read, change, pause and delete jobs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body

from functions.api.app import caller, log_unreadable, tenant
from functions.api.idempotency import once
from functions.api.job_filters import Count, JobStateFilter, Labels, NamePrefix, labels
from functions.api.job_requests import JobBody, JobPatchBody, JobPutBody, JobRequest
from functions.api.operation import area, operation
from functions.api.preconditions import IfMatch, IfNoneMatch, is_any, must_exist, versions
from functions.api.requests import (
    REASON_EXAMPLE,
    Cursor,
    JobId,
    Limit,
    PauseRequest,
    Reason,
    read_as,
    reading,
)
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.definition import JobDefinition
from nextfire.domain.document import Document, with_unknown
from nextfire.domain.edges import Which
from nextfire.domain.errors import InvalidInputError, NextfireError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import CLOCKS_DIFFER, EPOCH
from nextfire.domain.job import Job
from nextfire.domain.keys import Scope
from nextfire.domain.occurrences import JobState
from nextfire.domain.upcoming_runs import upcoming_runs
from nextfire.responses.base import UNREADABLE
from nextfire.responses.jobs import JobDetail, JobPage, JobResponse, UpcomingList
from nextfire.usecases.find_outstanding import has_outstanding
from nextfire.usecases.list_jobs import JobFilter
from nextfire.usecases.list_jobs import list_jobs as find_jobs
from nextfire.usecases.read_parents import in_batches, read_above


class DrainRequest(Document):
    """Drain a job."""

    reason: Reason = None


class ResumeRequest(Document):
    """An empty object."""


PauseBody = Annotated[PauseRequest, Body(openapi_examples=REASON_EXAMPLE), reading(PauseRequest)]
DrainBody = Annotated[DrainRequest, Body(openapi_examples=REASON_EXAMPLE), reading(DrainRequest)]
ResumeBody = Annotated[ResumeRequest, Body(), reading(ResumeRequest)]


routes = area()
_JOB = {HTTPStatus.OK: ("The job.", JobResponse)}
_CONFLICT = (HTTPStatus.CONFLICT,)
_CHANGED = (HTTPStatus.PRECONDITION_FAILED,)


@routes.post(
    "/v1/jobs",
    **operation(
        "Create a job",
        {HTTPStatus.CREATED: ("The job and its first occurrence are stored.", JobResponse)},
        problems=_CONFLICT,
    ),
)
def create_job(request: JobBody) -> Response[str]:
    asked = once()
    job_id = request.job_id or f"job_{asked.token('job')}"
    with _errors_as_spelled(request):
        job = services().jobs.register(
            _key(job_id),
            request.definition,
            uid=asked.token("uid"),
            now=now(),
            asked=asked,
        )
    return respond_job(job, HTTPStatus.CREATED)


@routes.get(
    "/v1/jobs",
    **operation("List jobs by id", {HTTPStatus.OK: ("A page of jobs.", JobPage)}, scope=Scope.READ),
)
def list_jobs(
    state: JobStateFilter = None,
    label: Labels = None,
    name: NamePrefix = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response[str]:
    wanted = JobFilter(
        state=None if state is None or state == UNREADABLE else JobState(state),
        labels=labels(label),
        name=name,
        # The labels and names of unreadable jobs are unknown.
        unreadable=state in {None, UNREADABLE} and not label and name is None,
        readable=state != UNREADABLE,
    )
    found = find_jobs(services().job_store, tenant(), wanted, cursor=cursor, limit=limit)
    log_unreadable(found.unreadable)
    return respond(JobPage.of(found, now()))


@routes.get(
    "/v1/jobs/<job_id>",
    **operation("Get a job", {HTTPStatus.OK: ("The job.", JobDetail)}, scope=Scope.READ),
)
def get_job(job_id: JobId) -> Response[str]:
    job = services().jobs.get(_key(job_id))
    until = now() + CLOCKS_DIFFER  # not an occurrence that was skipped in advance
    newest = services().runs.list(job.key, cursor=None, limit=1, first=EPOCH, before=until)
    log_unreadable(newest.unreadable)
    # Ignore runs of an earlier job with the same id.
    last = next((run for run in newest.items if run.key.uid == job.uid), None)
    return respond(JobDetail.of(job, now(), _drains(job), last), headers=_tag(job))


@routes.put(
    "/v1/jobs/<job_id>",
    **operation(
        "Create or replace a job",
        {
            HTTPStatus.OK: ("The job, replaced or unchanged.", JobResponse),
            HTTPStatus.CREATED: ("The job is new.", JobResponse),
        },
        problems=(*_CONFLICT, *_CHANGED),
    ),
)
def put_job(
    job_id: JobId,
    request: JobPutBody,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response[str]:
    if request.job_id not in {None, job_id}:
        raise InvalidInputError(
            request.spelt.get("jobId", "jobId"),
            request.job_id,
            "not the id in the path",
            "Leave this field out.",
        )
    with _errors_as_spelled(request):
        job, new = services().jobs.put(
            _key(job_id),
            request.definition,
            uid=secrets.token_hex(8),
            now=now(),
            expected=versions(if_match),
            only_new=is_any(if_none_match),
            only_existing=must_exist(if_match),
        )
    return respond_job(job, HTTPStatus.CREATED if new else HTTPStatus.OK)


@routes.patch(
    "/v1/jobs/<job_id>", **operation("Change a job", _JOB, problems=(*_CONFLICT, *_CHANGED))
)
def change_job(job_id: JobId, patch: JobPatchBody, if_match: IfMatch = None) -> Response[str]:
    def edit(definition: JobDefinition) -> JobDefinition:
        document = definition.document()
        if definition.retry_policy.has_usual_max_delay:
            del document["retryPolicy"]["maxDelayMs"]  # it follows from initialDelayMs
        changed = read_as(JobDefinition, _merged(document, patch))
        # Fields of a newer version are not the caller's: they are neither checked nor removed.
        return JobDefinition.stored_values(with_unknown(changed.document(), definition))

    expected = versions(if_match)
    return respond_job(services().jobs.change(_key(job_id), edit, now=now(), expected=expected))


@routes.delete(
    "/v1/jobs/<job_id>", **operation("Delete a job", _JOB, problems=(*_CONFLICT, *_CHANGED))
)
def delete_job(job_id: JobId, if_match: IfMatch = None) -> Response[str]:
    expected = versions(if_match)
    return respond_job(services().jobs.delete(_key(job_id), now=now(), expected=expected))


@routes.post(
    "/v1/jobs/<job_id>/pause",
    **operation("Pause a job", _JOB, problems=(*_CONFLICT, *_CHANGED)),
)
def pause_job(
    job_id: JobId,
    request: PauseBody = PauseRequest(),  # noqa: B008 — immutable
    if_match: IfMatch = None,
) -> Response[str]:
    expected = versions(if_match)
    job = services().jobs.pause(
        _key(job_id),
        request.reason,
        now=now(),
        by=caller().principal,
        until=request.ends_at,
        expected=expected,
        again=once().again,
    )
    return respond_job(job)


@routes.post(
    "/v1/jobs/<job_id>/drain",
    **operation(
        "Pause a job and report when its running executions have ended",
        {
            HTTPStatus.OK: (
                "The job, with `draining` until in-flight executions have ended.",
                JobResponse,
            )
        },
        problems=(*_CONFLICT, *_CHANGED),
    ),
)
def drain_job(
    job_id: JobId,
    request: DrainBody = DrainRequest(),  # noqa: B008 — immutable
    if_match: IfMatch = None,
) -> Response[str]:
    expected = versions(if_match)
    job = services().jobs.drain(
        _key(job_id),
        request.reason,
        now=now(),
        by=caller().principal,
        expected=expected,
        again=once().again,
    )
    return respond_job(job)


@routes.post(
    "/v1/jobs/<job_id>/resume",
    **operation("Resume a job", _JOB, problems=(*_CONFLICT, *_CHANGED)),
)
def resume_job(
    job_id: JobId,
    request: ResumeBody = ResumeRequest(),  # noqa: ARG001, B008 — immutable
    if_match: IfMatch = None,
) -> Response[str]:
    expected = versions(if_match)
    job = services().jobs.resume(_key(job_id), now=now(), expected=expected, again=once().again)
    return respond_job(job)


@routes.get(
    "/v1/jobs/<job_id>/upcoming",
    **operation(
        "List a job's next occurrences",
        {HTTPStatus.OK: ("The occurrences. Empty if the job is not ACTIVE.", UpcomingList)},
        scope=Scope.READ,
    ),
)
def list_upcoming(job_id: JobId, count: Count = 10) -> Response[str]:
    job = services().jobs.get(_key(job_id))
    asked = [edge.job for edge in job.definition.after if edge.which is Which.ALL]
    above = read_above(in_batches(services().job_store), tenant(), asked)
    return respond(UpcomingList.of(upcoming_runs(job, now(), count), job.definition, job, above))


@contextmanager
def _errors_as_spelled(request: JobRequest) -> Iterator[None]:
    """Name the fields in errors as the caller of *request* spelled them."""
    try:
        yield
    except NextfireError as error:
        raise request.as_spelled(error) from error


def _key(job_id: str) -> JobKey:
    return JobKey(tenant(), job_id)


def respond_job(job: Job, status: HTTPStatus = HTTPStatus.OK) -> Response[str]:
    """Respond with the current state of *job* and its ETag."""
    return respond(JobResponse.of(job, now(), _drains(job)), status, _tag(job))


def _drains(job: Job) -> bool:
    try:
        return has_outstanding(services().runs, job, now())
    except InvalidInputError:
        return False  # the time zone no longer exists: unknown


def _tag(job: Job) -> dict[str, str]:
    return {"ETag": f'"{job.version}"'}


_WHOLE = "payload"
_ENV = "target.env"


def _merged(document: dict[str, Any], patch: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Apply *patch* to *document*, which is at *place* of the job, by RFC 7396. `payload` and each
    variable of `target.env` are replaced as a whole: a reference to a parameter replaces a
    reference to a secret.
    """
    merged = dict(document)
    for name, value in patch.items():
        path = f"{place}.{name}" if place else name
        if value is None and path != _WHOLE:
            merged.pop(name, None)
        elif path == _WHOLE or place == _ENV or not isinstance(value, dict):
            merged[name] = value
        elif isinstance(merged.get(name), dict):
            merged[name] = _merged(merged[name], value, path)
        else:
            merged[name] = value
    return merged
