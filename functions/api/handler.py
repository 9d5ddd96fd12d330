"""The HTTPS API as a Lambda function behind API Gateway: routes to use cases, answers as JSON."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
    CancelRequest,
    PauseRequest,
    PreviewRequest,
    RedrivePoolRequest,
    RedriveRequest,
    ResumeRequest,
    execution_document,
    job_document,
    log_document,
    redriven_document,
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
from nextfire.adapters.aws import SystemClock, dynamodb, s3
from nextfire.adapters.control_store import DynamoDbControlStore
from nextfire.adapters.due_store import DynamoDbDueStore
from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.run_files import S3RunFiles
from nextfire.adapters.run_store import RETENTION, DynamoDbRunStore
from nextfire.domain.errors import (
    InvalidInputError,
    NextfireError,
    NotFoundError,
    UndecodableError,
    shorten,
)
from nextfire.domain.ids import JOB_ID, JobKey, RunKey, parse_execution_id
from nextfire.domain.instants import floor_minute, isoformat
from nextfire.domain.job import JobDefinition
from nextfire.domain.ports import JobStore, RunFiles, RunStore, Unreadable
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import check, read_instant
from nextfire.settings import ApiSettings
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.manage_jobs import Limits, ManageJobs
from nextfire.usecases.manage_runs import ManageRuns, Waiting
from nextfire.usecases.read_logs import ReadLogs
from nextfire.wiring.telemetry import Telemetry

MAX_BODY_BYTES = 256 * 1024
MAX_NESTING = 32
_MOST_ON_A_PAGE = 100
_ON_A_PAGE = 50
_MOST_LINES = 1000
_LINES = 200
_MOST_ATTEMPTS = 999_999_999
_LAST_NIGHT = timedelta(days=1)
_REDRIVE_FOR = timedelta(seconds=15)
"""API Gateway gives up on the API after 30 s."""
_SIDE_BY_SIDE = 10
_REASON = 'A body is optional; for example `{"reason": "the ledger is closed"}`.'
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
        self.runs: RunStore = DynamoDbRunStore(
            database,
            table=settings.runs_table,
            due_table=settings.due_table,
            shards=settings.write_shards,
        )
        self.files: RunFiles = S3RunFiles(s3(), bucket=settings.outputs_bucket)
        self.pools = sorted(settings.pools)
        limits = Limits(
            {name: pool.max_timeout for name, pool in settings.pools.items()},
            settings.scripts_bucket,
        )
        control = DynamoDbControlStore(database, table=settings.control_table)
        due = DynamoDbDueStore(
            database,
            table=settings.due_table,
            shards=settings.write_shards,
            executor=ThreadPoolExecutor(1),
        )
        unsent = FindUnsent(due, control, read_shards=settings.read_shards)
        self.jobs = ManageJobs(self.job_store, limits, unsent)
        self.executions = ManageRuns(
            self.job_store,
            self.runs,
            pools=self.pools,
            retention=RETENTION,
            clock=clock,
            executor=ThreadPoolExecutor(_SIDE_BY_SIDE),
        )
        self.logs = ReadLogs(self.executions, self.files)
        # Before the first due entry is written there is a cursor at or before its bucket, so the
        # watcher finds it however late it first comes.
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
    request = PauseRequest.model_validate_json(json.dumps(_optional_body(_REASON)))
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
    items = [execution_document(run, _result(run)) for run in page.items]
    items += [
        unreadable_execution(RunKey(key, found.identity).execution_id, found)
        for found in page.unreadable
    ]
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


@app.get("/v1/executions")
def list_dead() -> dict[str, Any]:
    tenant, query = _tenant(), app.current_event.query_string_parameters
    if query.get("state") != RunState.DEAD:
        raise InvalidInputError(
            "state",
            query.get("state"),
            "only executions in the state DEAD are listed across jobs",
            "Use state=DEAD, or list a job's executions: GET /v1/jobs/{jobId}/executions.",
        )
    pool = query.get("pool")
    if pool is not None and not pool:
        raise InvalidInputError("pool", pool, "no pool's name", _pools_there_are())
    first, last = _span(query.get("from"), query.get("to"))
    page = services().executions.dead(tenant, first=first, last=last, pool=pool, **_paging())
    _log_unreadable(page.unreadable)
    items = [execution_document(run, _result(run)) for run in page.items]
    items += [unreadable_execution(found.identity, found) for found in page.unreadable]
    return _page(items, page.cursor)


@app.get("/v1/executions/<execution_id>")
def get_execution(execution_id: str) -> dict[str, Any]:
    found = services().executions.find(_run_key(execution_id))
    if isinstance(found, Waiting):
        return waiting_document(found)
    return execution_document(found, _result(found, load=True))


@app.get("/v1/executions/<execution_id>/logs")
def read_log(execution_id: str) -> dict[str, Any]:
    key = _run_key(execution_id)
    query = app.current_event.query_string_parameters
    page = services().logs.page(
        key,
        cursor=query.get("cursor"),
        limit=_number("limit", _LINES, _MOST_LINES),
        attempt=_number("attempt", 1, _MOST_ATTEMPTS) if "attempt" in query else None,
    )
    return log_document(page)


@app.post("/v1/executions/<execution_id>/cancel")
def cancel_execution(execution_id: str) -> Response[str]:
    key = _run_key(execution_id)
    request = CancelRequest.model_validate_json(json.dumps(_optional_body(_REASON)))
    run = services().executions.cancel(key, request.reason)
    status = HTTPStatus.OK if run.state.ended else HTTPStatus.ACCEPTED
    return _json(status, execution_document(run))


@app.post("/v1/executions/<execution_id>/redrive")
def redrive_execution(execution_id: str) -> dict[str, Any]:
    key = _run_key(execution_id)
    request = RedriveRequest.model_validate_json(json.dumps(_optional_body(_REASON)))
    return execution_document(services().executions.redrive(key, request.reason))


@app.post("/v1/pools/<pool>/redrive")
def redrive_pool(pool: str) -> dict[str, Any]:
    tenant = _tenant()
    if pool not in services().pools:
        raise NotFoundError("pool", pool, _pools_there_are())
    body = _optional_body('A body is optional; for example `{"limit": 50}`.')
    request = RedrivePoolRequest.model_validate_json(json.dumps(body), by_alias=True, by_name=False)
    first, last = _span(request.from_, request.to)
    done = services().executions.redrive_dead(
        tenant,
        pool,
        first=first,
        last=last,
        cursor=request.cursor,
        limit=request.limit,
        reason=request.reason,
        until=clock.now() + _REDRIVE_FOR,
    )
    _log_unreadable(done.unreadable)
    return redriven_document(done)


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


def _run_key(execution_id: str) -> RunKey:
    return parse_execution_id(_tenant(), execution_id)


def _pools_there_are() -> str:
    return f"There are: {', '.join(services().pools)}."


def _span(first: str | None, last: str | None) -> tuple[datetime, datetime]:
    """From *first* to *last*, as a query has them; by default the 24 h before the end, and now."""
    to = clock.now() if last is None else read_instant(last, "UTC", "to")
    since = to - _LAST_NIGHT if first is None else read_instant(first, "UTC", "from")
    if since > to:
        raise InvalidInputError(
            "from",
            isoformat(since),
            f"later than `to`, which is {isoformat(to)}",
            "Exchange them, or leave one out: `to` is now by default, `from` 24 h before `to`.",
        )
    return since, to


def _result(run: Run, *, load: bool = False) -> dict[str, Any]:
    """The run's ``result``, if it has one that can be read; *load*: also one that is too large for
    the record.
    """
    if run.result is None:
        return {}
    text: str | bytes | None = run.result.text
    if load and run.result.file is not None:
        text = services().files.get(run.key, run.result.file)
    if text is None:
        return {}
    try:
        result = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(result)
    except (ValueError, RecursionError):
        telemetry.logger.exception("result does not decode", execution=run.key.execution_id)
        return {}
    return {"result": result}


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
        size = len(text.encode())  # half a surrogate pair has none
    except ValueError as error:
        raise MalformedError("The body is not UTF-8 text.") from error
    if size > MAX_BODY_BYTES:
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
    """*document* with *patch* laid over it, by RFC 7396; `payload` is replaced whole, and so is
    each variable of `env`: a reference to a parameter takes the place of one to a secret.
    """
    merged = dict(document)
    for name, value in patch.items():
        if value is None and name != "payload":
            merged.pop(name, None)
        elif name == "env" and isinstance(value, dict) and isinstance(merged.get(name), dict):
            both = {**merged[name], **value}
            merged[name] = {each: given for each, given in both.items() if given is not None}
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
