"""The HTTPS API as a Lambda function behind API Gateway: routes to use cases, answers as JSON."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as RouteNotFoundError
from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import ValidationError

from functions.api.documents import (
    MOST_UPCOMING,
    PauseRequest,
    PreviewRequest,
    ResumeRequest,
    execution_document,
    job_document,
    told,
    unreadable_execution,
    unreadable_job,
    upcoming_document,
    waiting_document,
)
from functions.api.problems import (
    MalformedError,
    from_validation,
    problem,
    problem_of,
    unreadable,
)
from nextfire.adapters.aws import SystemClock, dynamodb
from nextfire.adapters.control_store import DynamoDbControlStore
from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.run_store import RETENTION, DynamoDbRunStore
from nextfire.domain.decisions import MISFIRE_AFTER
from nextfire.domain.errors import (
    InvalidInputError,
    NextfireError,
    NotFoundError,
    UndecodableError,
    shorten,
)
from nextfire.domain.ids import JOB_ID, JobKey, RunKey, parse_execution_id
from nextfire.domain.instants import floor_minute, isoformat
from nextfire.domain.job import Job, JobDefinition, JobState
from nextfire.domain.ports import JobStore, RunStore, Unreadable
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import check, read_instant
from nextfire.settings import ApiSettings
from nextfire.usecases.manage_jobs import Limits, ManageJobs
from nextfire.wiring.telemetry import Telemetry

MAX_BODY_BYTES = 256 * 1024
MAX_NESTING = 32
_MOST_ON_A_PAGE = 100
_ON_A_PAGE = 50
_MOMENT = timedelta(milliseconds=1)
_NUMBER = re.compile(r"[0-9]{1,9}")  # int() refuses thousands of digits

telemetry = Telemetry("api")
app = APIGatewayHttpResolver(strip_prefixes=["/api"])
clock = SystemClock()


class _Services:
    """What the routes need, built with the first request of a process."""

    def __init__(self, settings: ApiSettings) -> None:
        database = dynamodb()
        self.job_store: JobStore = DynamoDbJobStore(
            database,
            table=settings.jobs_table,
            due_table=settings.due_table,
            shards=settings.write_shards,
        )
        self.runs: RunStore = DynamoDbRunStore(database, table=settings.runs_table)
        limits = Limits(
            {name: pool.max_timeout for name, pool in settings.pools.items()},
            settings.scripts_bucket,
        )
        self.jobs = ManageJobs(self.job_store, limits)
        # Before the first due entry is written there is a cursor at or before its bucket, so the
        # watcher finds it however late it first comes.
        control = DynamoDbControlStore(database, table=settings.control_table)
        control.seed_cursors(settings.read_shards, floor_minute(clock.now()))


@cache
def services() -> _Services:
    return _Services(ApiSettings.read())


@app.get("/v1/health")
def health() -> dict[str, Any]:
    return {"status": "ok", "time": isoformat(clock.now())}


@app.post("/v1/jobs")
def create_job() -> Response[str]:
    document = _body()
    job_id = document.pop("jobId", None)
    if job_id is None:
        job_id = f"job_{secrets.token_hex(8)}"
    definition = _definition(document)
    job = services().jobs.register(
        _job_key(job_id), definition, uid=secrets.token_hex(8), now=clock.now()
    )
    return _json(HTTPStatus.CREATED, job_document(job, clock.now()))


@app.get("/v1/jobs")
def list_jobs() -> dict[str, Any]:
    page = services().job_store.list(_tenant(), **_paging())
    _log_unreadable(page.unreadable)
    items = [job_document(job, clock.now()) for job in page.items]
    items += map(unreadable_job, page.unreadable)
    return _page(sorted(items, key=lambda item: str(item["jobId"])), page.cursor)


@app.get("/v1/jobs/<job_id>")
def get_job(job_id: str) -> dict[str, Any]:
    return job_document(services().jobs.get(_job_key(job_id)), clock.now())


@app.patch("/v1/jobs/<job_id>")
def change_job(job_id: str) -> dict[str, Any]:
    patch = _body()

    def edit(definition: JobDefinition) -> JobDefinition:
        return _definition(_merged(definition.document(), patch))

    job = services().jobs.change(_job_key(job_id), edit, now=clock.now())
    return job_document(job, clock.now())


@app.delete("/v1/jobs/<job_id>")
def delete_job(job_id: str) -> dict[str, Any]:
    job = services().jobs.delete(_job_key(job_id), now=clock.now())
    return job_document(job, clock.now())


@app.post("/v1/jobs/<job_id>/pause")
def pause_job(job_id: str) -> dict[str, Any]:
    key = _job_key(job_id)
    body = _optional_body('A body is optional; for example `{"reason": "the ledger is closed"}`.')
    request = PauseRequest.model_validate_json(json.dumps(body))
    return job_document(services().jobs.pause(key, request.reason, now=clock.now()), clock.now())


@app.post("/v1/jobs/<job_id>/resume")
def resume_job(job_id: str) -> dict[str, Any]:
    key = _job_key(job_id)
    body = _optional_body("A body is optional and has no fields; leave it out.")
    ResumeRequest.model_validate_json(json.dumps(body))
    return job_document(services().jobs.resume(key, now=clock.now()), clock.now())


@app.get("/v1/jobs/<job_id>/executions")
def list_executions(job_id: str) -> dict[str, Any]:
    key = _job_key(job_id)
    page = services().runs.list(key, **_paging())
    _log_unreadable(page.unreadable)
    first = app.current_event.query_string_parameters.get("cursor") is None
    if first and not page.items and not page.unreadable:
        services().jobs.get(key)  # an unknown job is told apart from one that has not run
    items = [execution_document(run) for run in page.items]
    items += [unreadable_execution(key, found) for found in page.unreadable]
    newest_first = sorted(items, key=lambda item: str(item["executionId"]), reverse=True)
    return _page(newest_first, page.cursor)


@app.get("/v1/jobs/<job_id>/upcoming")
def upcoming(job_id: str) -> dict[str, Any]:
    job = services().jobs.get(_job_key(job_id))
    found = job.upcoming(clock.now(), _number("count", 10, MOST_UPCOMING))
    jittered = job.definition.jitter_sec > 0
    return {"items": [upcoming_document(each, jittered=jittered, job=job) for each in found]}


@app.post("/v1/schedules/preview")
def preview() -> dict[str, Any]:
    _tenant()
    request = PreviewRequest.model_validate_json(json.dumps(_body()), by_alias=True, by_name=False)
    since = clock.now()
    if request.after is not None:
        since = read_instant(request.after, request.timezone, "after")
    check(request.schedule_from(since))
    found = request.upcoming(since, since, request.count, uid="preview")
    jittered = request.jitter_sec > 0
    return {"items": [upcoming_document(each, jittered=jittered) for each in found]}


@app.get("/v1/executions/<execution_id>")
def get_execution(execution_id: str) -> dict[str, Any]:
    key = parse_execution_id(_tenant(), execution_id)
    run = services().runs.get(key)
    if run is not None:
        return execution_document(run)
    try:
        _ = key.scheduled_at
    except ValueError as error:  # digits that are no date
        raise NotFoundError("execution", execution_id) from error
    return _without_a_record(key)


def _without_a_record(key: RunKey) -> dict[str, Any]:
    """What there is to say of an occurrence that has no record of its own.

    Raises:
        NotFoundError: It is none, it is not due yet, or its record's time is over.
    """
    at, now = key.scheduled_at, clock.now()
    newest = services().runs.between(key.job, "0", key.run_id, newest_first=True, page=1)
    before = next(newest, None)
    if before is not None and before.key.uid != key.uid:
        before = None
    covered = before is not None and before.covers_until >= at
    try:
        job = services().job_store.get(key.job)
    except UndecodableError:
        if not covered:
            raise
        job = None
    owner = _owner(job, at) if job is not None and job.uid == key.uid else None
    known = None if owner is None else _is_occurrence(owner, at)
    if before is not None and covered and known is not False:
        return execution_document(before)
    if job is None or owner is None or not known or at <= now - RETENTION:
        raise NotFoundError("execution", key.execution_id)
    if any(past.paused and past.effective_from < at <= past.until for past in job.replaced):
        return waiting_document(
            key, "due during a pause that a change of the job ended; about to be SKIPPED"
        )
    paused = job.state is JobState.PAUSED and owner is job
    due_at = owner.due_at(at)
    if due_at > now:
        would = "It would be due at {}, but its job is paused." if paused else "It is due at {}."
        raise NotFoundError("execution", key.execution_id, would.format(isoformat(due_at)))
    if paused:
        policy = job.definition.misfire.policy
        reason = f"its job is paused; when it is resumed, misfire policy {policy} decides"
    else:
        reason = _why_it_waits(job, due_at, before, now)
    return waiting_document(key, reason)


def _owner(job: Job, at: datetime) -> Job | None:
    """*job* as of the version to which an occurrence at *at* belongs; *job* itself if it is the
    present one. None: none that is known.
    """
    if at > job.effective_from:
        return None if job.state is JobState.CANCELLED else job
    past = next((p for p in job.replaced if p.effective_from < at <= p.until), None)
    return None if past is None else job.as_of(past)


def _is_occurrence(owner: Job, at: datetime) -> bool | None:
    """Whether the version *owner* has an occurrence at *at*; None if that cannot be known."""
    try:
        most = owner.definition.max_runs
        return owner.next_after(at - _MOMENT) == at and (most is None or owner.ordinal(at) <= most)
    except InvalidInputError:
        return None  # a zone that is no longer known


def _why_it_waits(job: Job, due_at: datetime, before: Run | None, now: datetime) -> str:
    """What can be known of an occurrence that was due at *due_at* and was not taken. *before*: the
    newest record of an earlier one.
    """
    if before is not None and job.exclusive and _is_in_the_way(before, due_at):
        overlap = job.definition.overlap
        return (
            f"waits for {before.key.execution_id}, which has not ended (overlap policy {overlap})"
        )
    late = now - due_at
    if late < MISFIRE_AFTER:
        return "dispatched or about to be; no executor has taken it yet"
    return (
        f"due {late // timedelta(seconds=1)} s ago and not taken by an executor yet: it waits in "
        "its pool's queue, or in the table for room there or for its job's earlier runs; or no "
        "watcher runs. See docs/policies.md"
    )


def _is_in_the_way(run: Run, due_at: datetime) -> bool:
    """Whether *run* has not ended, and its message came before one that was sent at *due_at*: while
    it waits for a retry it holds up nothing.
    """
    if run.state is RunState.PENDING:
        return run.not_before is None or run.not_before <= due_at
    return run.state is RunState.RUNNING


@app.not_found
def no_such_route(error: RouteNotFoundError) -> Response[str]:  # noqa: ARG001
    event = app.current_event
    return problem(
        HTTPStatus.NOT_FOUND,
        f"There is no {event.http_method} {event.path}. The routes are listed in the README.",
    )


@app.exception_handler(UndecodableError)  # type: ignore[untyped-decorator]
def undecodable(error: UndecodableError) -> Response[str]:
    path = app.current_event.path
    telemetry.logger.error("stored item does not decode", path=path, problem=str(error))
    return unreadable(told(str(error)))


@app.exception_handler(NextfireError)  # type: ignore[untyped-decorator]
def expected(error: NextfireError) -> Response[str]:
    return problem_of(error)


@app.exception_handler(ValidationError)  # type: ignore[untyped-decorator]
def invalid(error: ValidationError) -> Response[str]:
    return from_validation(error)


@app.exception_handler(Exception)  # type: ignore[untyped-decorator]
def unexpected(error: Exception) -> Response[str]:
    telemetry.logger.error("request failed", exc_info=error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "This is our fault, and it has been logged.")


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0)."""
    answer = app.resolve(event, context)
    http = event["requestContext"]["http"]
    telemetry.logger.info(
        "request",
        method=http["method"],
        path=http["path"],
        status=answer["statusCode"],
        request_id=event["requestContext"].get("requestId"),
    )
    return answer


def _tenant() -> str:
    """Whose request this is: the identity's AWS account, and nothing that the request says."""
    authorizer = app.current_event.request_context.authorizer
    iam = authorizer.iam if authorizer else None
    if iam is None or not iam.account_id:
        raise PermissionError("a request without an identity came past the authorizer")
    return iam.account_id


def _job_key(job_id: object) -> JobKey:
    if not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
        raise InvalidInputError(
            "jobId", job_id, "not a job id", "Use 1 to 64 letters, digits, hyphens and underscores."
        )
    return JobKey(_tenant(), job_id)


def _log_unreadable(found: Iterable[Unreadable]) -> None:
    path = app.current_event.path
    for each in found:
        telemetry.logger.error(
            "stored item does not decode", path=path, item=each.identity, problem=each.problem
        )


def _optional_body(remedy: str) -> dict[str, Any]:
    """The body; one that is absent is an empty one. *remedy*: what to send if it is malformed."""
    if not app.current_event.body:
        return {}
    try:
        return _body()
    except MalformedError as error:
        raise MalformedError(f"{error} {remedy}") from error


def _body() -> dict[str, Any]:
    """The body, a JSON object."""
    try:
        text = app.current_event.decoded_body or ""
    except ValueError as error:
        raise MalformedError("The body is not UTF-8 text.") from error
    if len(text.encode()) > MAX_BODY_BYTES:
        raise InvalidInputError(
            "body", f"{len(text)} characters", f"larger than {MAX_BODY_BYTES} bytes", "Shorten it."
        )
    try:
        body = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise MalformedError("The body is not a JSON object.")
    if _depth(body) > MAX_NESTING:
        raise InvalidInputError(
            "body", f"{_depth(body)} levels", f"nested deeper than {MAX_NESTING}", "Flatten it."
        )
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{shorten(text)} is larger than any number that can be kept")
    return number


def _depth(value: object) -> int:
    """How deep lists and objects are nested; 0 for a plain value. A loop: input is hostile."""
    depth, level = 0, [value]
    while level := [
        inner
        for outer in level
        if isinstance(outer, dict | list)
        for inner in ([None, *outer.values()] if isinstance(outer, dict) else [None, *outer])
    ]:
        depth += 1
    return depth


def _definition(document: Mapping[str, Any]) -> JobDefinition:
    # By alias only: a snake_case spelling beside the real field would be dropped without a word.
    return JobDefinition.model_validate_json(json.dumps(document), by_alias=True, by_name=False)


def _merged(document: dict[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """*document* with *patch* laid over it, by RFC 7396; `payload` is replaced whole."""
    merged = dict(document)
    for name, value in patch.items():
        if value is None and name != "payload":
            merged.pop(name, None)
        elif name != "payload" and isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = value
    return merged


def _paging() -> dict[str, Any]:
    limit = _number("limit", _ON_A_PAGE, _MOST_ON_A_PAGE)
    return {"limit": limit, "cursor": app.current_event.query_string_parameters.get("cursor")}


def _number(name: str, default: int, most: int) -> int:
    """The query parameter *name*, 1 to *most*."""
    text = app.current_event.query_string_parameters.get(name, str(default))
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise InvalidInputError(
            name, text, f"not a number from 1 to {most}", f"For example `{default}`."
        )
    return int(text)


def _page(items: list[dict[str, Any]], cursor: str | None) -> dict[str, Any]:
    return {"items": items} if cursor is None else {"items": items, "cursor": cursor}


def _json(status: HTTPStatus, document: Mapping[str, Any]) -> Response[str]:
    return Response(status, "application/json", json.dumps(document, separators=(",", ":")))
