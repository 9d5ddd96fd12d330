"""Routes for pools."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import Field

from functions.api.app import log_unreadable, tenant
from functions.api.idempotency import once
from functions.api.operation import WORKS_FOR, area, operation
from functions.api.requests import UTC_NOTE, PoolName, Reason, body_example, reading, span
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.document import Document
from nextfire.domain.when import InstantText
from nextfire.responses.executions import RedrivenResponse

MAX_REDRIVEN = 100


class RedrivePoolRequest(Document):
    """Redrive up to `limit` executions of a pool that became DEAD between `from` (default: 24 h
    before `to`) and `to` (default: now), starting at `cursor`.
    """

    from_: InstantText | None = Field(default=None, alias="from", description=UTC_NOTE)
    to: InstantText | None = Field(default=None, description=UTC_NOTE)
    limit: Annotated[int, Field(strict=True, ge=1, le=MAX_REDRIVEN)] = 50
    cursor: Annotated[str, Field(max_length=1024)] | None = None
    reason: Reason = None


RedrivePoolBody = Annotated[
    RedrivePoolRequest,
    Body(openapi_examples=body_example({"limit": 50})),
    reading(RedrivePoolRequest),
]


routes = area()


@routes.post(
    "/v1/pools/<pool>/redrive",
    **operation(
        "Redrive the dead executions of a pool",
        {HTTPStatus.OK: ("The result.", RedrivenResponse)},
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
        until=now() + WORKS_FOR,
    )
    log_unreadable(done.unreadable)
    return respond(RedrivenResponse.of(done))
