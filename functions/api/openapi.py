"""The OpenAPI 3.1 document: what Powertools derives from the routes, completed with headers,
errors, links and examples.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler.openapi.models import APIKey, APIKeyIn, HTTPBearer
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from functions.api import answer_models, requests
from functions.api.app import app
from functions.api.idempotency import KEY_PATTERN
from functions.api.operation import ANSWERS, OPEN, PROBLEMS, SCOPE, TOLD_ONCE
from nextfire.domain.job import MAX_EXPRESSION, MAX_INSTANT, Document
from nextfire.domain.schedule import MAX_DATES
from nextfire.usecases.idempotent_requests import KEY

_SCHEMAS = "#/components/schemas/"
_ABOUT = """\
Create jobs, schedule them, and read their executions.

- Every path is also available under `/api`.
- Fields are camelCase; unset fields are omitted from responses. Unknown fields and query parameters
  are rejected; the error suggests the closest known name.
- Errors are problem documents (RFC 9457): `detail` states the problem and the remedy, `errors`
  lists each invalid field. Errors of the gateway in front of the API have only a `message`.
- To get the next page of a listing, pass its `cursor`. A page may hold fewer items than `limit`,
  or none.
- The identity of the caller determines the tenant. No other part of a request does.
"""
_SECURITY = {
    "apiKey": HTTPBearer(bearerFormat="nfk_TENANT.KEY.SECRET", description="An API key."),
    "jwt": HTTPBearer(
        bearerFormat="JWT", description="A token, if the stack is configured for JWT."
    ),
    "sigV4": APIKey(
        in_=APIKeyIn.header,
        name="Authorization",
        description="AWS Signature Version 4 (service `execute-api`), if the stack uses IAM.",
    ),
}
BY_THE_GATEWAY = {
    HTTPStatus.BAD_REQUEST: "The gateway cannot read the request.",
    HTTPStatus.UNAUTHORIZED: "Credentials are missing, or the token is invalid.",
    HTTPStatus.FORBIDDEN: (
        "The key is invalid, expired or revoked; the signature is invalid or expired; or the "
        "principal may not call this route."
    ),
    HTTPStatus.NOT_FOUND: "The API or the stage does not exist.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The request is larger than 10 MB.",
    HTTPStatus.TOO_MANY_REQUESTS: "The rate limit of the deployment is exceeded.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The authorizer failed.",
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "The API is unavailable or did not respond within 30 s. The request may have taken effect."
    ),
    HTTPStatus.GATEWAY_TIMEOUT: "No response in time. The request may have taken effect.",
}
"""Responses of API Gateway itself, with its own body."""
_BY_THE_API = {
    HTTPStatus.BAD_REQUEST: "The body is not a JSON object.",
    HTTPStatus.FORBIDDEN: (
        "The identity lacks the scope, or the request is outside the network or label "
        "restriction of the key."
    ),
    HTTPStatus.NOT_FOUND: "The resource does not exist, or it belongs to another tenant.",
    HTTPStatus.METHOD_NOT_ALLOWED: "The path does not support this method: see `Allow`.",
    HTTPStatus.CONFLICT: "The state of the resource does not allow this.",
    HTTPStatus.PRECONDITION_FAILED: "The condition of `If-Match` or `If-None-Match` is not met.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "What is asked for makes no sense: see `errors`.",
    HTTPStatus.TOO_MANY_REQUESTS: (
        "A quota of the tenant is exceeded, or the request rate of the tenant or the key."
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: "An internal error, or a stored item that cannot be decoded.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A store does not respond. The request may have taken effect.",
}
_ALWAYS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_WAIT = {
    "Retry-After": {
        "description": "Seconds to wait before a retry.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_EXAMPLES: dict[str, Any] = {
    "JobAnswer": {
        "jobId": "daily-invoices",
        "state": "ACTIVE",
        "revision": 1,
        "nextFireAt": "2026-05-24T10:00:00Z",
        "createdAt": "2026-05-23T17:12:08.120Z",
        "updatedAt": "2026-05-23T17:12:08.120Z",
        "type": "CRON",
        "schedule": "0 3 * * *",
        "timezone": "America/Los_Angeles",
        "dst": "ONCE",
        "jitterSec": 0,
        "target": {"pool": "default", "handler": "generate_invoices", "env": {}},
        "payload": {"customer": "acme"},
        "retryPolicy": {
            "maxAttempts": 3,
            "backoff": "EXPONENTIAL",
            "initialDelayMs": 10_000,
            "maxDelayMs": 3_600_000,
            "jitter": "NONE",
            "retryOn": {"states": ["FAILED", "TIMED_OUT", "WORKER_LOST"]},
        },
        "timeoutSec": 300,
        "priority": "NORMAL",
        "misfire": {"policy": "RUN_LATEST"},
        "overlap": "ALLOW",
        "labels": {},
    },
    "ExecutionAnswer": {
        "executionId": "daily-invoices.20260524T100000000Z-k3x9m2ab",
        "jobId": "daily-invoices",
        "state": "SUCCEEDED",
        "scheduledAt": "2026-05-24T10:00:00Z",
        "dispatchedAt": "2026-05-24T10:00:00.012Z",
        "startedAt": "2026-05-24T10:00:00.301Z",
        "finishedAt": "2026-05-24T10:00:02.944Z",
        "pool": "default",
        "dispatch": 1,
        "attempt": 1,
        "worker": "lambda/1f3a",
        "jobRevision": 1,
        "exitCode": 0,
        "stdout": "12 invoices\n",
        "stderr": "",
        "attempts": [
            {
                "number": 1,
                "worker": "lambda/1f3a",
                "startedAt": "2026-05-24T10:00:00.301Z",
                "finishedAt": "2026-05-24T10:00:02.944Z",
                "outcome": "SUCCEEDED",
                "exitCode": 0,
            }
        ],
    },
    "QuotasAnswer": {
        "quotas": {"jobs": 1000, "runsPerMinute": 600, "shortestIntervalSec": 60},
        "used": {"jobs": 12, "runsPerMinute": 17},
        "minuteEndsAt": "2026-05-24T10:01:00Z",
        "weight": 1,
    },
    "Problem": {
        "type": "about:blank",
        "title": "Unprocessable Entity",
        "status": 422,
        "detail": (
            "timeout_sec: Extra inputs are not permitted (got 60). Did you mean `timeoutSec`?"
        ),
        "errors": [
            {
                "field": "timeout_sec",
                "value": "60",
                "problem": "Extra inputs are not permitted",
                "remedy": "Did you mean `timeoutSec`?",
            }
        ],
    },
}
_SCHEDULE = {
    "description": (
        "ONCE: an instant. DELAY: an ISO 8601 duration. CRON: five fields. INTERVAL: a duration. "
        "DATES: a list of instants. MANUAL: none."
    ),
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_INSTANT},
            "minItems": 1,
            "maxItems": MAX_DATES,
        },
        {"type": "null"},
    ],
}

_IDEMPOTENCY_KEY = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": (
        "A request that is repeated with the same key within 24 h takes effect once. The key is "
        "rejected if the body differs."
    ),
    "schema": {"type": "string", "pattern": f"^{KEY_PATTERN}$"},
    "example": "6f1c0a52-8d1b-4c7e-9a43-0f5f4b1f2f10",
}


@cache
def description() -> dict[str, Any]:
    """The OpenAPI document. Do not modify it: it is cached."""
    read: dict[str, Any] = json.loads(
        app.get_openapi_json_schema(
            title="nextfire",
            version="1",
            openapi_version="3.1.0",
            description=_ABOUT,
            security_schemes=_SECURITY,  # type: ignore[arg-type] # invariant
            security=[{name: []} for name in _SECURITY],
        )
    )
    document: dict[str, Any] = _tidy(read)
    schemas = document["components"]["schemas"]
    for name, schema in _answer_schemas().items():
        schemas.setdefault(name, schema)
    for unused in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        schemas.pop(unused, None)
    _describe_errors(document["components"])
    for name in ("JobRequest", "PreviewRequest"):
        schemas[name]["properties"]["schedule"] = _SCHEDULE
    schemas["Target"]["properties"]["env"]["additionalProperties"] = False
    schemas["JobPatch"] = _patch(schemas, "JobRequest") | {
        "description": "Fields in the patch change; null restores the default (RFC 7396)."
    }
    del schemas["JobPatch"]["properties"]["jobId"]
    schemas["ShortJob"] = _short(schemas["JobRequest"])
    for name in _answers():
        if name in schemas:
            _as_answered(schemas[name])
    for name, example in _EXAMPLES.items():
        schemas[name]["examples"] = [example]
    document["paths"] = {
        path: dict(sorted(methods.items()))
        for path, methods in sorted(_paths(document["paths"]).items())
    }
    _link(document["paths"])
    return document


def _tidy(value: Any) -> Any:  # noqa: ANN401 — any JSON
    """*value* without titles that repeat a field's name, and with whole floats as integers."""
    if isinstance(value, dict):
        return {
            name: {each: _tidy(schema) for each, schema in inner.items()}
            if name == "properties"
            else _tidy(inner)
            for name, inner in value.items()
            if name != "title" or "version" in value
        }
    if isinstance(value, list):
        return [_tidy(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _answer_schemas() -> dict[str, Any]:
    _, found = models_json_schema(
        [(getattr(answer_models, name), "serialization") for name in sorted(ANSWERS)],
        ref_template=f"{_SCHEMAS}{{model}}",
    )
    return {name: _tidy(schema) for name, schema in found["$defs"].items()}


def _answers() -> Iterator[str]:
    for name, each in vars(answer_models).items():
        if isinstance(each, type) and issubclass(each, Document):
            yield name


def _describe_errors(components: dict[str, Any]) -> None:
    schemas = components["schemas"]
    for model in (answer_models.Problem, answer_models.Fault):
        schema = _tidy(model.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}"))
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    schemas["GatewayMessage"] = {
        "type": "object",
        "description": "A response of API Gateway itself.",
        "required": ["message"],
        "properties": {"message": {"type": ["string", "null"]}},
        "examples": [{"message": "Unauthorized"}],
    }
    components["responses"] = {
        status.name: _problem(status) for status in sorted(_BY_THE_API.keys() | BY_THE_GATEWAY)
    }


def _problem(status: HTTPStatus) -> dict[str, Any]:
    said = [_BY_THE_API.get(status), BY_THE_GATEWAY.get(status)]
    content: dict[str, Any] = {}
    if status in _BY_THE_API:
        content["application/problem+json"] = {"schema": {"$ref": f"{_SCHEMAS}Problem"}}
    if status in BY_THE_GATEWAY:
        content["application/json"] = {"schema": {"$ref": f"{_SCHEMAS}GatewayMessage"}}
    described: dict[str, Any] = {
        "description": " ".join(filter(None, said)),
        "content": content,
    }
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        described["headers"] = _WAIT
    return described


def _patch(schemas: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of a patch of *name*: every field is optional, and null removes a value."""
    schema: dict[str, Any] = deepcopy(schemas[name])
    schema.pop("required", None)
    for field, given in schema["properties"].items():
        inner = given.get("$ref", "").removeprefix(_SCHEMAS)
        may_be = {each: value for each, value in given.items() if each != "default"}
        if inner in schemas and "properties" in schemas[inner]:
            schemas[f"{inner}Patch"] = _patch(schemas, inner)
            may_be = {"$ref": f"{_SCHEMAS}{inner}Patch"}
        if field in {"labels", "env"}:
            where, key = may_be, "additionalProperties"
            if "patternProperties" in may_be:
                [key] = where = may_be["patternProperties"]
            where[key] = {"anyOf": [where[key], {"type": "null"}]}
        if field != "payload" and {"type": "null"} not in may_be.get("anyOf", ()):
            may_be = {"anyOf": [may_be, {"type": "null"}]}
        schema["properties"][field] = may_be
    return schema


def _short(schema: dict[str, Any]) -> dict[str, Any]:
    """The short form of the schema of a new job."""
    stands_for = requests.ShortJob.spelt
    given = {name: value for name, value in schema["properties"].items() if name != "type"}
    cron = {"type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION}
    short = {
        "taskId": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"},
        "cron": cron | {"description": "Five fields."},
        "params": given["payload"],
    }
    return {
        "type": "object",
        "description": inspect.getdoc(requests.ShortJob),
        "required": ["taskId", "cron"],
        "properties": short | {k: v for k, v in given.items() if k not in stands_for},
        "additionalProperties": False,
    }


def _as_answered(schema: dict[str, Any]) -> None:
    """Make nullable fields optional and all others required: responses omit null."""
    optional = set()
    for name, given in schema.get("properties", {}).items():
        given.pop("default", None)
        if {"type": "null"} in given.get("anyOf", ()):
            optional.add(name)
            given["anyOf"].remove({"type": "null"})
            if len(given["anyOf"]) == 1:
                given.update(given.pop("anyOf")[0])
    schema["required"] = [name for name in schema.get("properties", {}) if name not in optional]


def _paths(read: dict[str, Any]) -> dict[str, Any]:
    routes = {
        (route.openapi_path, route.method.lower()): route
        for route in [*app._static_routes, *app._dynamic_routes]  # noqa: SLF001
    }
    paths: dict[str, Any] = {}
    for path, methods in read.items():
        written = re.sub(r"\{(\w+)\}", lambda match: f"{{{to_camel(match[1])}}}", path)
        for method, operation in methods.items():
            route = routes[path, method]
            operation["operationId"] = to_camel(route.func.__name__)
            operation["tags"] = [route.func.__module__.rpartition(".")[2]]
            _complete(operation, route)
            paths.setdefault(written, {})[method] = operation
    return paths


def _name_parameters(operation: dict[str, Any]) -> None:
    """Spell parameter names as callers do, and remove null from their schemas."""
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            parameter["name"] = to_camel(parameter["name"])
        if parameter["in"] == "header":
            parameter["name"] = "-".join(map(str.capitalize, parameter["name"].split("-")))
        schema = parameter["schema"]
        schema.pop("description", None)
        if {"type": "null"} in schema.get("anyOf", ()):
            schema["anyOf"].remove({"type": "null"})
            schema |= schema.pop("anyOf")[0]


def _complete(operation: dict[str, Any], route: Any) -> None:  # noqa: ANN401 — the library's
    _name_parameters(operation)
    if method_body := operation.get("requestBody"):
        content = method_body["content"]["application/json"]
        if route.method == "PATCH":
            content["schema"] = {"$ref": f"{_SCHEMAS}JobPatch"}
        if content["schema"] == {"$ref": f"{_SCHEMAS}JobRequest"}:
            forms = ("JobRequest", "ShortJob")
            content["schema"] = {"anyOf": [{"$ref": f"{_SCHEMAS}{form}"} for form in forms]}
    if route.method == "POST":
        operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
    needs = operation.pop(SCOPE)
    operation.pop(TOLD_ONCE, None)
    also = [HTTPStatus(status) for status in operation.pop(PROBLEMS, [])]
    operation["responses"].pop("422")
    statuses = {*_ALWAYS, *also}
    if needs == OPEN:
        operation["security"] = []
        statuses -= {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
    else:
        needed = f"Needs the scope `{needs}`."
        operation["description"] = " ".join(filter(None, [route.description, needed]))
        operation[SCOPE] = needs
    if "requestBody" in operation:
        statuses |= {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
    if "{" in route.openapi_path:
        statuses.add(HTTPStatus.NOT_FOUND)
    for status in sorted(statuses):
        operation["responses"][str(int(status))] = {"$ref": f"#/components/responses/{status.name}"}


def _link(paths: dict[str, Any]) -> None:
    """Link every response that has an id to the routes that take this id."""
    for methods in paths.values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                schema = response.get("content", {}).get("application/json", {}).get("schema", {})
                where = _IDS.get(schema.get("$ref", "").removeprefix(_SCHEMAS))
                if status.startswith("2") and where is not None:
                    response["links"] = _links(paths, *where)


_IDS = {
    "JobAnswer": ("jobId", "$response.body#/jobId"),
    "JobDetail": ("jobId", "$response.body#/jobId"),
    "JobPage": ("jobId", "$response.body#/items/0/jobId"),
    "ExecutionAnswer": ("executionId", "$response.body#/executionId"),
    "ExecutionPage": ("executionId", "$response.body#/items/0/executionId"),
}
"""By response model: the parameter that its id fills, and where the id is."""


def _links(paths: dict[str, Any], name: str, expression: str) -> dict[str, Any]:
    return {
        operation["operationId"]: {
            "operationId": operation["operationId"],
            "parameters": {name: expression},
        }
        for path, methods in paths.items()
        for operation in methods.values()
        if f"{{{name}}}" in path
    }
