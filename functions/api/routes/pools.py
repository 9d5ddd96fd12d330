"""Routes for pools."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus

from aws_lambda_powertools.event_handler import Response

from functions.api.answers import answer
from functions.api.app import log_unreadable, now, services, tenant
from functions.api.documents import redriven_document
from functions.api.idempotency import once
from functions.api.operation import area, operation
from functions.api.requests import PoolName, RedrivePoolBody, RedrivePoolRequest, span

routes = area()
_REDRIVE_FOR = timedelta(seconds=15)
"""API Gateway gives up on the API after 30 s."""


@routes.post(
    "/v1/pools/<pool>/redrive",
    **operation(
        "Redrive the dead executions of a pool",
        {HTTPStatus.OK: ("The result.", "RedrivenAnswer")},
        more="After a lost response, a retry with the same `Idempotency-Key` returns only what the "
        "retry found and did: executions that the first call redrove are not listed again.",
    ),
)
def redrive_pool(
    pool: PoolName,
    request: RedrivePoolBody = RedrivePoolRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    pool = services().pool(pool)
    # A retry does not redrive executions that the first try redrove and that died again since.
    asked_at = once().first_sent_at or now()
    first, last = span(request.from_, request.to, asked_at)
    done = services().executions.redrive_dead(
        tenant(),
        pool,
        first=first,
        last=min(last, asked_at),
        cursor=request.cursor,
        limit=request.limit,
        reason=request.reason,
        until=now() + _REDRIVE_FOR,
    )
    log_unreadable(done.unreadable)
    return answer(redriven_document(done))
