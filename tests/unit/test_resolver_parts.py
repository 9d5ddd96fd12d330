"""The private parts of Powertools that the API uses are there, and do what it relies on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.middlewares.openapi_validation import (
    OpenAPIRequestValidationMiddleware,
)

from functions.api.resolver_parts import Resolver, check_requests_with, path_of, routes_of
from functions.embedded.gateway_event import GatewayRequest, event_of


@pytest.fixture
def app() -> APIGatewayHttpResolver:
    app = Resolver(enable_validation=True, strip_prefixes=["/stage"])

    @app.get("/things/<thing>")
    def one(thing: str) -> dict[str, str]:
        return {"thing": thing}

    @app.get("/things")
    def every() -> dict[str, str]:
        return {}

    return app


def test_routes_are_those_that_were_included(app: APIGatewayHttpResolver) -> None:
    routes = {route.openapi_path: route for route in routes_of(app)}

    assert {*routes} == {"/things", "/things/{thing}"}
    assert routes["/things/{thing}"].rule.match("/things/a").groupdict() == {"thing": "a"}
    assert routes["/things"].method == "GET"


def test_a_line_feed_at_the_end_is_part_of_the_path(app: APIGatewayHttpResolver) -> None:
    rules = [route.rule for route in routes_of(app)]

    assert not any(rule.match(path) for rule in rules for path in ("/things\n", "/things/a\n"))


def test_the_path_has_no_prefix(app: APIGatewayHttpResolver) -> None:
    assert path_of(app, "/stage/things") == path_of(app, "/things") == "/things"


def test_own_checks_run_before_the_route(app: APIGatewayHttpResolver) -> None:
    checked = []

    class Checks(OpenAPIRequestValidationMiddleware):
        def handler(self, app: Any, next_middleware: Any) -> Any:
            checked.append(app.current_event.path)
            return super().handler(app, next_middleware)

    check_requests_with(app, Checks())  # type: ignore[no-untyped-call]
    request = GatewayRequest("GET", "/things/a", [], b"", "127.0.0.1")
    event = event_of(request, now=datetime(2026, 5, 24, tzinfo=UTC), request_id="r")

    assert app.resolve(event, None)["statusCode"] == 200  # type: ignore[arg-type]
    assert checked == ["/things/a"]
