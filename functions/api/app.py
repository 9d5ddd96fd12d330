"""The resolver of all routes, and the mapping of errors to responses."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, get_args

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError as RouteNotFoundError
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from functions.api.body import read_body
from functions.api.identity import Identity
from functions.api.problems import from_validation, problem, problem_of, unreadable
from functions.api.request_checks import RequestChecks
from functions.api.resolver_parts import Resolver, check_requests_with, routes_of
from functions.api.services import identify_event, telemetry
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import NextfireError, UndecodableError
from nextfire.domain.ports.pages import Unreadable
from nextfire.responses.base import one_line

app = Resolver(strip_prefixes=["/api"], enable_validation=True, json_body_deserializer=read_body)


def caller() -> Identity:
    """The identity of the caller of the current request.

    Raises:
        PermissionError: The request has no identity, which is a bug.
    """
    return identify_event(app.current_event.raw_event)


def tenant() -> str:
    """The tenant of the caller. It comes from the identity, never from the request."""
    return caller().tenant


def header(name: str) -> str | None:
    """The value of the header *name*, case-insensitive."""
    wanted = name.lower()
    for given, value in app.current_event.headers.items():
        if given.lower() == wanted:
            return value
    return None


def log_unreadable(found: Iterable[Unreadable]) -> None:
    path = app.current_event.path
    for each in found:
        telemetry.logger.error(
            "stored item does not decode", path=path, item=each.identity, problem=each.problem
        )


# The library has no other hook that runs before its own validation.
check_requests_with(app, RequestChecks())  # type: ignore[no-untyped-call]


@app.not_found
def route_not_found(error: RouteNotFoundError) -> Response[str]:  # noqa: ARG001
    event = app.current_event
    path = app.context["_path"]
    allowed = sorted(route.method for route in routes_of(app) if route.rule.match(path))
    shown = event.path if event.path.isprintable() else ascii(event.path)[1:-1]
    asked = f"{event.http_method} {shown}"
    if allowed:
        return problem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"{asked} is not allowed. Allowed methods: {', '.join(allowed)}.",
            headers={"Allow": ", ".join(allowed)},
        )
    return problem(
        HTTPStatus.NOT_FOUND,
        f"The route {asked} does not exist. GET /v1/openapi.json lists the routes.",
    )


@app.exception_handler(UndecodableError)  # type: ignore[untyped-decorator]
def undecodable(error: UndecodableError) -> Response[str]:
    path = app.current_event.path
    telemetry.logger.error("stored item does not decode", path=path, problem=str(error))
    return unreadable(one_line(str(error)))


@app.exception_handler(NextfireError)  # type: ignore[untyped-decorator]
def expected(error: NextfireError) -> Response[str]:
    return problem_of(error)


@app.exception_handler(RequestValidationError)  # type: ignore[untyped-decorator]
def invalid_request(error: RequestValidationError) -> Response[str]:
    faults: Any = [fault | {"loc": _as_written(*fault["loc"])} for fault in error.errors()]
    bodies = app.context["_route"].dependant.body_params
    model = get_args(bodies[0].field_info.annotation)[0] if bodies else None
    return from_validation(faults, model)


def _as_written(where: str, *loc: int | str) -> tuple[int | str, ...]:
    """*loc* as the caller knows it; *where* is the part of the request."""
    return tuple(to_camel(str(part)) for part in loc) if where == "path" else loc


@app.exception_handler(ValidationError)  # type: ignore[untyped-decorator]
def invalid_change(error: ValidationError) -> Response[str]:
    return from_validation(error.errors(include_url=False), JobDefinition)


@app.exception_handler(Exception)  # type: ignore[untyped-decorator]
def unexpected(error: Exception) -> Response[str]:
    telemetry.logger.error("request failed", exc_info=error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. It has been logged.")
