"""Routes for executions. The code calls them runs."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer, page
from functions.api.app import log_unreadable, now, services, telemetry, tenant
from functions.api.body import read_json
from functions.api.documents import (
    UNREADABLE,
    execution_document,
    log_document,
    unreadable_execution,
    waiting_document,
)
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import (
    AttemptNumber,
    CancelBody,
    CancelRequest,
    Cursor,
    ExecutionId,
    ExecutionState,
    From,
    JobId,
    Limit,
    Lines,
    OfJob,
    PoolFilter,
    RedriveBody,
    RedriveRequest,
    To,
    span,
)
from nextfire.domain.errors import ConflictError, InvalidInputError
from nextfire.domain.ids import JobKey, RunKey, parse_execution_id
from nextfire.domain.keys import Scope
from nextfire.domain.run import Run, RunState
from nextfire.usecases.list_runs import RunFilter, list_runs
from nextfire.usecases.manage_runs import PendingOccurrence

routes = area()
_PAGE = {HTTPStatus.OK: ("A page of executions.", "ExecutionPage")}
_EXECUTION = {HTTPStatus.OK: ("The execution.", "ExecutionAnswer")}
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
    items = [execution_document(run, _result(run)) for run in found.items]
    items += [
        unreadable_execution(RunKey(key, each.identity).execution_id, each)
        for each in found.unreadable
    ]
    newest_first = sorted(items, key=lambda item: str(item["executionId"]), reverse=True)
    return page(newest_first, found.cursor)


@routes.get(
    "/v1/executions",
    **operation(
        "List executions across jobs",
        _PAGE,
        scope=Scope.READ,
        more="Returns executions scheduled at or after `from` and before `to`, ordered by job id, "
        "newest first within a job. With `state=DEAD` and without `jobId`, returns executions "
        "that became DEAD between `from` and `to`, latest first. A page may be short or empty: "
        "continue while the response has a `cursor`.",
    ),
)
def list_all_executions(
    state: ExecutionState = None,
    job_id: OfJob = None,
    pool: PoolFilter = None,
    from_: From = None,
    to: To = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response[str]:
    if pool is not None and not pool:
        raise InvalidInputError(
            "pool", pool, "not a pool of this stack", services().pools_there_are()
        )
    first, last = span(from_, to, now())
    if state == RunState.DEAD and job_id is None:
        dead = services().executions.dead(
            tenant(), first=first, last=last, pool=pool, cursor=cursor, limit=limit
        )
        log_unreadable(dead.unreadable)
        items = [execution_document(run, _result(run)) for run in dead.items]
        items += [unreadable_execution(each.identity, each) for each in dead.unreadable]
        return page(items, dead.cursor)
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
    found = list_runs(
        services().job_store, services().runs, tenant(), wanted, cursor=cursor, limit=limit
    )
    log_unreadable(each for _, each in found.unreadable)
    items = [execution_document(run, _result(run)) for run in found.items]
    items += [
        unreadable_execution(RunKey(job, each.identity).execution_id, each)
        for job, each in found.unreadable
    ]
    items.sort(key=lambda item: str(item["executionId"]), reverse=True)
    return page(sorted(items, key=lambda item: str(item["jobId"])), found.cursor)


@routes.get(
    "/v1/executions/<execution_id>",
    **operation("Get an execution", _EXECUTION, scope=Scope.READ),
)
def get_execution(execution_id: ExecutionId) -> Response[str]:
    found = services().executions.find(_key(execution_id))
    if isinstance(found, PendingOccurrence):
        return answer(waiting_document(found))
    return answer(execution_document(found, _result(found, load=True)))


@routes.get(
    "/v1/executions/<execution_id>/logs",
    **operation(
        "Read an execution's log",
        {HTTPStatus.OK: ("Lines of the log, oldest first.", "LogAnswer")},
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
    return answer(log_document(found))


@routes.post(
    "/v1/executions/<execution_id>/cancel",
    **operation(
        "Cancel an execution",
        {
            HTTPStatus.OK: ("The execution is CANCELLED.", "ExecutionAnswer"),
            HTTPStatus.ACCEPTED: (
                "The execution is RUNNING; cancellation is requested.",
                "ExecutionAnswer",
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
        found = executions.find(key) if once().again else None
        if not isinstance(found, Run) or found.state is not RunState.CANCELLED:
            raise
        run = found
    status = HTTPStatus.OK if run.state.ended else HTTPStatus.ACCEPTED
    return answer(execution_document(run), status)


@routes.post(
    "/v1/executions/<execution_id>/redrive",
    **operation("Redrive a dead execution", _EXECUTION, problems=_CONFLICT),
)
def redrive_execution(
    execution_id: ExecutionId,
    request: RedriveBody = RedriveRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    key, executions = _key(execution_id), services().executions
    try:
        run = executions.redrive(key, request.reason, asked_at=once().first_sent_at)
    except ConflictError:
        # An earlier try of this request may have redriven it.
        found = executions.find(key) if once().again else None
        if not isinstance(found, Run) or not found.attempt_base or found.state is RunState.DEAD:
            raise
        run = found
    return answer(execution_document(run))


def _key(execution_id: str) -> RunKey:
    return parse_execution_id(tenant(), execution_id)


def _result(run: Run, *, load: bool = False) -> dict[str, Any]:
    """The ``result`` field of *run*, or nothing if it is absent or unreadable. With *load*, also
    read a result that is too large for the record.
    """
    if run.result is None:
        return {}
    text: str | bytes | None = run.result.text
    if load and run.result.file is not None:
        text = services().files.get(run.result_folder, run.result.file)
    if text is None:
        return {}
    try:
        result = read_json(text)
        json.dumps(result)
    except (ValueError, RecursionError):
        telemetry.logger.exception("result does not decode", execution=run.key.execution_id)
        return {}
    return {"result": result}
