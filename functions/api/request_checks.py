"""The checks of each request before its route runs: the caller, the rate of requests, the query,
and the body.
"""

from __future__ import annotations

import binascii
import json
from typing import Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware
from aws_lambda_powertools.event_handler.middlewares.openapi_validation import (
    OpenAPIRequestValidationMiddleware,
)
from aws_lambda_powertools.event_handler.openapi.params import Body
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from functions.api.access import set_access
from functions.api.body import read_body
from functions.api.identity import Identity
from functions.api.operation import BY_LABEL, OPEN, SCOPE
from functions.api.problems import MalformedError, MissingScopeError
from functions.api.requests import MAX_PARAMETER_CHARS, too_long
from functions.api.services import identify_event, now, services
from nextfire.domain.errors import InvalidInputError, shorten
from nextfire.domain.quotas import Quota, too_many_requests
from nextfire.domain.remedies import nearest
from nextfire.domain.restriction import RestrictedError

_CONDITIONS = ("If-Match", "If-None-Match")


class RequestChecks(OpenAPIRequestValidationMiddleware):
    """Checks the caller and the names of the query parameters, then validates the request as
    Powertools does.
    """

    def handler(self, app: Any, next_middleware: NextMiddleware) -> Response[Any]:  # noqa: ANN401 — as the library has it
        route = app.context["_route"]
        # The response to an unknown path has no extensions; every authenticated caller gets it.
        extensions = route.openapi_extensions or {}
        if extensions.get(SCOPE) != OPEN:
            _check_caller(app.current_event, extensions.get(SCOPE), extensions.get(BY_LABEL))
        if route.openapi_extensions is not None:
            known = [field.alias for field in route.dependant.query_params]
            _check_query(app.current_event, known)
            _check_conditions(app.current_event, route)
        return super().handler(app, next_middleware)

    def _get_body(self, app: Any) -> dict[str, Any]:  # noqa: ANN401
        # The content type is ignored: curl declares every body as a form.
        [field] = app.context["_route"].dependant.body_params
        event = app.current_event
        try:
            body = event.json_body
            return read_body("") if body is None and field.required else body
        except (binascii.Error, UnicodeDecodeError) as error:
            raise MalformedError("The body is not UTF-8 text.") from error
        except MalformedError as error:
            if field.required:
                raise
            raise MalformedError(f"{error} {_what_may_be_sent(field.field_info)}") from error


def _check_caller(event: APIGatewayProxyEventV2, needed: str | None, by_label: str | None) -> None:
    """Check the source address, request rate, scope and label restriction of the caller.

    The address is the one that the gateway recorded, never a header. The authorizer cannot check
    it, because the gateway caches its result across addresses.
    """
    who = identify_event(event.raw_event)
    who.check_address(event.request_context.http.source_ip)
    _check_rate(who)
    if needed is not None and needed not in who.scopes:
        raise MissingScopeError(needed)
    if by_label is not None and who.restriction.labels:
        raise RestrictedError(f"Your key is restricted to jobs by label, and {by_label}")
    set_access(who)


def _check_rate(who: Identity) -> None:
    """Check the request limits of the key and the tenant, before the body is read. Once a limit is
    used up, most requests are rejected without a call to a store.
    """
    quotas, limit = services().tenant_quotas.of(who.tenant), services().limit_requests
    key, tenant = f"key#{who.tenant}#{who.counted_as}", f"tenant#{who.tenant}"
    at, of_key, of_tenant = now(), quotas.key_request_limit, quotas.request_limit
    if of_key and (wait := limit.admit(key, of_key, at)) is not None:
        raise too_many_requests(Quota.KEY_REQUESTS_PER_SECOND, of_key, wait)
    if of_tenant and (wait := limit.admit(tenant, of_tenant, at)) is not None:
        if of_key:
            limit.give_back(key)
        raise too_many_requests(Quota.REQUESTS_PER_SECOND, of_tenant, wait)


def _check_query(event: APIGatewayProxyEventV2, known: list[str]) -> None:
    for name, value in event.query_string_parameters.items():
        if name not in known:
            remedy = nearest(name, known) or (
                f"Available: {', '.join(known)}." if known else "Omit it: none exist."
            )
            field = name if name.isprintable() and name else shorten(name)
            raise InvalidInputError(field, value, "not a query parameter of this route", remedy)
        if len(value) > MAX_PARAMETER_CHARS:
            raise too_long(name, value)


def _check_conditions(event: APIGatewayProxyEventV2, route: Any) -> None:  # noqa: ANN401 — the library's
    """Reject a condition that *route* does not check: the request would take effect although the
    condition may not hold. Caches add conditions to reads, which may ignore them.
    """
    if event.http_method.upper() == "GET":
        return
    checked = {field.alias.lower() for field in route.dependant.header_params}
    for name in _CONDITIONS:
        value = event.headers.get(name)
        if value is not None and name.lower() not in checked:
            raise InvalidInputError(
                name, value, "this route does not check it", "Send the request without it."
            )


def _what_may_be_sent(body: Body) -> str:
    for example in (body.openapi_examples or {}).values():
        return f"A body is optional; for example `{json.dumps(dict(example)['value'])}`."
    return "A body is optional and has no fields; leave it out."
