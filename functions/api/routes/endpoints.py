"""Routes that show, pause, resume and limit the endpoints of HTTP callbacks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import unquote

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from pydantic import BeforeValidator, Field, WithJsonSchema

from functions.api.app import app, log_unreadable, tenant
from functions.api.audit_trail import note
from functions.api.operation import area, operation
from functions.api.requests import (
    REASON_EXAMPLE,
    Cursor,
    Limit,
    PoolFilter,
    PoolName,
    Reason,
    reading,
)
from functions.api.respond import respond
from functions.api.services import now, services
from nextfire.domain.call_limit import MAX_PARALLEL, MAX_PER_MINUTE, CallLimit
from nextfire.domain.document import Document, document_error
from nextfire.domain.endpoints import EndpointKey, parse_destination
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.keys import Scope
from nextfire.responses.endpoints import EndpointPage, EndpointResponse


def _destination(value: object) -> object:
    try:
        # Clients may encode the colon and the brackets.
        return parse_destination(unquote(str(value)))
    except InvalidInputError as error:
        raise document_error("destination", error.problem, error.remedy) from error


Destination = Annotated[
    str,
    BeforeValidator(_destination),
    WithJsonSchema({"type": "string", "examples": ["api.example.com:443"]}),
]
"""``host`` or ``host:port``; the default port is 443."""


class PauseEndpointRequest(Document):
    """Pause an endpoint until it is resumed."""

    reason: Reason = None


class ResumeEndpointRequest(Document):
    """An empty object."""


class LimitEndpointRequest(Document):
    """Limits of the calls of an endpoint. A limit that is absent is removed."""

    per_minute: Annotated[int, Field(strict=True, ge=1, le=MAX_PER_MINUTE)] | None = None
    parallel: Annotated[int, Field(strict=True, ge=1, le=MAX_PARALLEL)] | None = None


LimitBody = Annotated[
    LimitEndpointRequest,
    Body(openapi_examples={"limit": {"value": {"perMinute": 600, "parallel": 10}}}),
    reading(LimitEndpointRequest),
]
PauseBody = Annotated[
    PauseEndpointRequest, Body(openapi_examples=REASON_EXAMPLE), reading(PauseEndpointRequest)
]
ResumeBody = Annotated[ResumeEndpointRequest, Body(), reading(ResumeEndpointRequest)]


routes = area()
_NO_JOB = "an endpoint belongs to no job. Use a key without labels for endpoints."
_ENDPOINT = {HTTPStatus.OK: ("The endpoint.", EndpointResponse)}


@routes.get(
    "/v1/endpoints",
    **operation(
        "List endpoints",
        {HTTPStatus.OK: ("A page of endpoints.", EndpointPage)},
        scope=Scope.READ,
        by_label=_NO_JOB,
    ),
)
def list_endpoints(
    pool: PoolFilter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response[str]:
    found = services().endpoints.list(tenant(), pool=pool, cursor=cursor, limit=limit)
    log_unreadable(found.unreadable)
    return respond(EndpointPage.of(found, now()))


@routes.get(
    "/v1/endpoints/<pool>/<destination>",
    **operation(
        "Get an endpoint",
        _ENDPOINT,
        scope=Scope.READ,
        by_label=_NO_JOB,
        more="A destination that no execution has called is CLOSED, too.",
    ),
)
def get_endpoint(pool: PoolName, destination: Destination) -> Response[str]:
    endpoint = services().endpoints.get(_key(pool, destination))
    return respond(EndpointResponse.of(endpoint, now()))


@routes.post(
    "/v1/endpoints/<pool>/<destination>/pause",
    **operation(
        "Pause an endpoint",
        _ENDPOINT,
        by_label=_NO_JOB,
        more="Executions of all your jobs of the pool that call it wait, at least a minute. They "
        "start within 15 minutes after the pause, or 45 if it took hours. Calls in progress "
        "continue. Takes effect within 5 seconds.",
    ),
)
def pause_endpoint(
    pool: PoolName,
    destination: Destination,
    request: PauseBody = PauseEndpointRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    key = _key(services().pool(pool, targets="calls"), destination)
    _note(key)
    endpoint = services().endpoints.pause(key, request.reason, now())
    return respond(EndpointResponse.of(endpoint, now()))


@routes.post(
    "/v1/endpoints/<pool>/<destination>/resume",
    **operation(
        "Resume an endpoint",
        _ENDPOINT,
        by_label=_NO_JOB,
        more="Closes it, whether it is PAUSED or OPEN. Waiting executions start when their wait "
        "ends.",
    ),
)
def resume_endpoint(
    pool: PoolName,
    destination: Destination,
    request: ResumeBody = ResumeEndpointRequest(),  # noqa: ARG001, B008 — immutable
) -> Response[str]:
    key = _key(services().pool(pool), destination)
    _note(key)
    endpoint = services().endpoints.resume(key, now())
    if endpoint.changed_at is None:  # a pool that made calls before may have paused endpoints
        services().pool(pool, targets="calls")
    return respond(EndpointResponse.of(endpoint, now()))


@routes.post(
    "/v1/endpoints/<pool>/<destination>/limit",
    **operation(
        "Limit the calls of an endpoint",
        _ENDPOINT,
        by_label=_NO_JOB,
        more="Executions of all your jobs of the pool that call it share the limits. Those that "
        "must wait use up no attempts. Takes effect within 5 seconds; executions that wait already "
        "come at their time, within an hour.",
    ),
)
def limit_endpoint(
    pool: PoolName,
    destination: Destination,
    request: LimitBody = LimitEndpointRequest(),  # noqa: B008 — immutable
) -> Response[str]:
    key = _key(services().pool(pool, targets="calls"), destination)
    _note(key)
    limit = CallLimit(request.per_minute, request.parallel)
    endpoint = services().endpoints.limit(key, limit, now())
    return respond(EndpointResponse.of(endpoint, now()))


def _key(pool: str, destination: str) -> EndpointKey:
    return EndpointKey(pool, tenant(), destination)


def _note(key: EndpointKey) -> None:
    """Record the request in the audit chain, before it takes effect. The table of endpoints has no
    stream: executors write it, too.
    """
    resource = {"pool": key.pool, "destination": key.destination}
    note(str(app.current_event.request_context.request_id), resource=resource)
