"""Routes for executions. The code calls them runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Query

from functions.api.access import sees_all_jobs
from functions.api.app import log_unreadable, tenant
from functions.api.body import read_json
from functions.api.idempotency import once
from functions.api.job_filters import labels
from functions.api.operation import area, operation
from functions.api.requests import (
    REASON_EXAMPLE,
    Cursor,
    ExecutionId,
    From,
    JobId,
    Limit,
    PoolFilter,
    Reason,
    To,
    number_parameter,
    reading,
    span,
)
from functions.api.respond import respond
from functions.api.run_filters import ExecutionState, OfJob, OfLabels
from functions.api.services import now, services, telemetry
from nextfire.domain.document import Document
from nextfire.domain.errors import ConflictError, InvalidInputError
from nextfire.domain.ids import JobKey, RunKey, parse_execution_id
from nextfire.domain.keys import Scope
from nextfire.domain.pool_names import available
from nextfire.domain.ports.overview import OverviewPage, StepFilter
from nextfire.domain.run import Run, RunState
from nextfire.responses.base import UNREADABLE, ApiResponse, Json
from nextfire.responses.executions import (
    ExecutionPage,
    ExecutionResponse,
    FreshnessResponse,
    LogResponse,
    UnreadableExecution,
)
from nextfire.usecases.find_run import PendingOccurrence
from nextfire.usecases.labelled_runs import LabelledRuns
from nextfire.usecases.list_runs import RunFilter, list_runs
from nextfire.usecases.manage_runs import was_started

_MAX_LOG_LINES = 1000
_MAX_ATTEMPT = 999_999_999


class CancelRequest(Document):
    """Cancel an execution."""

    reason: Reason = None


class RedriveRequest(Document):
    """Redrive a dead execution, or start one now that waits for its retry."""

    reason: Reason = None


class ReplayRequest(Document):
    """Send the request of an execution again."""

    reason: Reason = None


ReplayBody = Annotated[ReplayRequest, Body(openapi_examples=REASON_EXAMPLE), reading(ReplayRequest)]
CancelBody = Annotated[CancelRequest, Body(openapi_examples=REASON_EXAMPLE), reading(CancelRequest)]
RedriveBody = Annotated[
    RedriveRequest, Body(openapi_examples=REASON_EXAMPLE), reading(RedriveRequest)
]
Lines = Annotated[
    int,
    Query(description="Maximum number of lines on a page."),
    *number_parameter(_MAX_LOG_LINES, 200),
]
AttemptNumber = Annotated[
    int | None,
    Query(description="Only lines of this attempt. Default: all attempts."),
    *number_parameter(_MAX_ATTEMPT, 1),
]


routes = area()
_PAGE = {HTTPStatus.OK: ("A page of executions.", ExecutionPage)}
_EXECUTION = {HTTPStatus.OK: ("The execution.", ExecutionResponse)}
_CONFLICT = (HTTPStatus.CONFLICT,)


@routes.get(
    "/v1/jobs/<job_id>/executions",
    **operation("List a job's executions, newest first", _PAGE, scope=Scope.READ),
)
def list_executions(job_id: JobId, limit: Limit = 50, cursor: Cursor = None) -> Response[str]:
    key = JobKey(tenant(), job_id)
    found = services().runs.list(key, cursor=cursor, limit=limit)
    log_unreadable(found.unreadable)
    if cursor is None and not found.items and not found.unreadable:
        services().jobs.get(key)  # raises if the job does not exist
    unreadable = [
        UnreadableExecution.of(each, RunKey(key, each.identity).execution_id)
        for each in found.unreadable
    ]
    items = sorted([*_executions(found.items), *unreadable], key=_id, reverse=True)
    return respond(ExecutionPage.of(items=items, cursor=found.cursor))


@routes.get(
    "/v1/executions",
    **operation(
        "List executions across jobs",
        _PAGE,
        scope=Scope.READ,
        more="Returns executions whose latest change (end, else start, else schedule) was at or "
        "after `from` and before `to`, latest first. With `jobId`, with `state=UNREADABLE`, and "
        "for keys restricted by labels: executions scheduled in that time, ordered by job id, "
        "newest first within a job; the page then has no `overview`. With `state=DEAD` and "
        "without `jobId`: executions that became DEAD in that time, latest first. With `label`, "
        "a call searches up to 5 pages of `limit` executions for those of jobs with the labels. A "
        "page may be short or empty: continue while the response has a `cursor`.",
    ),
)
def list_all_executions(
    state: ExecutionState = None,
    job_id: OfJob = None,
    pool: PoolFilter = None,
    label: OfLabels = None,
    from_: From = None,
    to: To = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response[str]:
    if pool is not None and not pool:
        raise InvalidInputError(
            "pool", pool, "not a pool of this stack", available(services().pools)
        )
    first, last = span(from_, to, now())
    labelled = LabelledRuns(services().job_store, labels(label))
    if state == RunState.DEAD and job_id is None:
        find = partial(services().executions.dead, tenant(), first=first, last=last, pool=pool)
        dead = labelled.page(find, cursor=cursor, limit=limit)
        log_unreadable(dead.unreadable)
        items = _executions(dead.items)
        items += [UnreadableExecution.of(each, each.identity) for each in dead.unreadable]
        return respond(ExecutionPage.of(items=items, cursor=dead.cursor))
    overview = services().overview
    if job_id is None and state != UNREADABLE and overview is not None and sees_all_jobs():
        wanted_steps = StepFilter(
            first, last, tuple(RunState) if state is None else (RunState(state),), pool
        )
        if overview.covers(tenant()):
            seen = partial(overview.list, tenant(), wanted_steps)
            return respond(_page_of(labelled.page(seen, cursor=cursor, limit=limit)))
    wanted = RunFilter(
        first=first,
        before=last,
        job_id=job_id,
        state=None if state is None or state == UNREADABLE else RunState(state),
        pool=pool,
        # The pool of an unreadable execution is unknown.
        unreadable=state in {None, UNREADABLE} and pool is None,
        readable=state != UNREADABLE,
    )
    listed = partial(list_runs, services().job_store, services().runs, tenant(), wanted)
    found = labelled.page(listed, cursor=cursor, limit=limit, pages=1)
    log_unreadable(each for _, each in found.unreadable)
    items = _executions(found.items)
    items += [
        UnreadableExecution.of(each, RunKey(job, each.identity).execution_id)
        for job, each in found.unreadable
    ]
    items.sort(key=_id, reverse=True)
    items.sort(key=lambda each: str(each.document["jobId"]))
    return respond(ExecutionPage.of(items=items, cursor=found.cursor))


def _page_of(found: OverviewPage) -> ExecutionPage:
    log_unreadable(found.unreadable)
    items = _executions(found.items)
    items += [UnreadableExecution.of(each, each.identity) for each in found.unreadable]
    return ExecutionPage.of(
        items=items, cursor=found.cursor, overview=FreshnessResponse.of(found.freshness)
    )


@routes.get(
    "/v1/executions/<execution_id>",
    **operation("Get an execution", _EXECUTION, scope=Scope.READ),
)
def get_execution(execution_id: ExecutionId) -> Response[str]:
    found = services().find_run.find(_key(execution_id))
    if isinstance(found, PendingOccurrence):
        return respond(ExecutionResponse.of_pending(found.key, found.reason))
    shown = services().find_run.explain(found)
    return respond(ExecutionResponse.of(shown, _result(found, load=True)))


@routes.get(
    "/v1/executions/<execution_id>/logs",
    **operation(
        "Read an execution's log",
        {HTTPStatus.OK: ("Lines of the log, oldest first.", LogResponse)},
        scope=Scope.READ,
    ),
)
def read_log(
    execution_id: ExecutionId,
    cursor: Cursor = None,
    limit: Lines = 200,
    attempt: AttemptNumber = None,
) -> Response[str]:
    found = services().logs.page(_key(execution_id), cursor=cursor, limit=limit, attempt=attempt)
    return respond(LogResponse.of(found))


@routes.post(
    "/v1/executions/<execution_id>/cancel",
    **operation(
        "Cancel an execution",
        {
            HTTPStatus.OK: ("The execution is CANCELLED.", ExecutionResponse),
            HTTPStatus.ACCEPTED: (
                "The execution is RUNNING; cancellation is requested.",
                ExecutionResponse,
            ),
        },
        problems=_CONFLICT,
    ),
)
def cancel_execution(
    execution_id: ExecutionId,
    request: CancelBody = CancelRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    key, executions = _key(execution_id), services().executions
    try:
        run = executions.cancel(key, request.reason)
    except ConflictError:
        # An earlier try of this request may have cancelled it.
        found = services().find_run.find(key) if once().again else None
        if not isinstance(found, Run) or found.state is not RunState.CANCELLED:
            raise
        run = found
    status = HTTPStatus.OK if run.state.ended else HTTPStatus.ACCEPTED
    return respond(ExecutionResponse.of(run), status)


@routes.post(
    "/v1/executions/<execution_id>/redrive",
    **operation(
        "Redrive a dead execution, or start a waiting one now",
        _EXECUTION,
        problems=_CONFLICT,
        more="A DEAD execution gets all attempts of its job's policy. One that is PENDING until "
        "its `retryAt` makes its next attempt now.",
    ),
)
def redrive_execution(
    execution_id: ExecutionId,
    request: RedriveBody = RedriveRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    key, executions = _key(execution_id), services().executions
    try:
        run = executions.redrive(key, request.reason, asked_at=once().first_sent_at)
    except ConflictError:
        # An earlier try of this request may have started it.
        found = services().find_run.find(key) if once().again else None
        if not isinstance(found, Run) or not was_started(found) or found.state is RunState.DEAD:
            raise
        run = found
    return respond(ExecutionResponse.of(run))


@routes.post(
    "/v1/executions/<execution_id>/replay",
    **operation(
        "Replay an execution of an HTTP callback",
        {HTTPStatus.CREATED: ("The execution is stored and will start.", ExecutionResponse)},
        problems=(HTTPStatus.CONFLICT,),
        more="Starts a new execution that sends the latest request again: the same bytes, except "
        "trace, signatures and authentication. If the job has changed so that they would differ, "
        "it sends nothing and is DEAD.",
    ),
)
def replay_execution(
    execution_id: ExecutionId,
    request: ReplayBody = ReplayRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    run = services().request_runs.replay(
        _key(execution_id), request.reason, request=once().token("replay"), asked_at=once().at
    )
    return respond(ExecutionResponse.of(run), HTTPStatus.CREATED)


def _key(execution_id: str) -> RunKey:
    return parse_execution_id(tenant(), execution_id)


def _executions(runs: Iterable[Run]) -> list[ApiResponse]:
    return [ExecutionResponse.of(run, _result(run)) for run in runs]


def _id(execution: ApiResponse) -> str:
    return str(execution.document["executionId"])


def _result(run: Run, *, load: bool = False) -> Json | None:
    """The result of *run*, or None if it is absent or unreadable. With *load*, also read a result
    that is too large for the record.
    """
    if run.result is None:
        return None
    text: str | bytes | None = run.result.text
    if load and run.result.file is not None:
        text = services().files.get(run.result_folder, run.result.file)
    if text is None:
        return None
    try:
        result = read_json(text)
        json.dumps(result)
    except (ValueError, RecursionError):
        telemetry.logger.exception("result does not decode", execution=run.key.execution_id)
        return None
    return Json(result)
