"""The OpenAPI 3.1 document: what Powertools derives from the routes, completed with headers,
errors, links and examples.
"""

from __future__ import annotations

import inspect
import json
import re
from copy import deepcopy
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic.alias_generators import to_camel

from functions.api import job_requests, response_schemas
from functions.api import openapi_texts as texts
from functions.api.app import app
from functions.api.areas import include_all
from functions.api.operation import NOT_STORED, OPEN, PROBLEMS, RESPONSES, SCOPE
from functions.api.resolver_parts import routes_of
from nextfire.domain.occurrences import JobState
from nextfire.domain.when import MAX_EXPRESSION
from nextfire.responses.problems import Problem

_SCHEMAS = "#/components/schemas/"


@cache
def description() -> dict[str, Any]:
    """The OpenAPI document. Do not modify it: it is cached."""
    include_all()
    read: dict[str, Any] = json.loads(
        app.get_openapi_json_schema(
            title="nextfire",
            version="1",
            openapi_version="3.1.0",
            description=texts.ABOUT,
            security_schemes=texts.SECURITY,  # type: ignore[arg-type] # invariant
            security=[{name: []} for name in texts.SECURITY],
        )
    )
    document: dict[str, Any] = _tidy(read)
    schemas = document["components"]["schemas"]
    derived = response_schemas.schemas({*RESPONSES, Problem}, f"{_SCHEMAS}{{model}}")
    for name, schema in derived.items():
        schemas.setdefault(name, _tidy(schema))
    for unused in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        schemas.pop(unused, None)
    _describe_errors(document["components"])
    schemas["Target"]["properties"]["env"]["additionalProperties"] = False
    schemas["JobPatch"] = _patch(schemas, "JobRequest") | {
        "description": "Fields in the patch change; null restores the default (RFC 7396)."
    }
    del schemas["JobPatch"]["properties"]["jobId"]
    schemas["ShortJob"] = _short(schemas["JobRequest"])
    for name, example in {"JobResponse": _example_job(), **texts.EXAMPLES}.items():
        schemas[name]["examples"] = [example]
    document["paths"] = {
        path: dict(sorted(methods.items()))
        for path, methods in sorted(_paths(document["paths"]).items())
    }
    _link(document["paths"])
    return document


def _example_job() -> dict[str, Any]:
    """The job that the example of a request creates."""
    request = job_requests.JobRequest.model_validate(job_requests.CRON_JOB_EXAMPLE)
    return {
        "jobId": request.job_id,
        "state": JobState.ACTIVE,
        "revision": 1,
        "nextFireAt": "2026-05-24T10:00:00Z",
        "createdAt": "2026-05-23T17:12:08.120Z",
        "updatedAt": "2026-05-23T17:12:08.120Z",
        **request.definition.document(),
    }


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


def _describe_errors(components: dict[str, Any]) -> None:
    schemas = components["schemas"]
    schemas["GatewayMessage"] = {
        "type": "object",
        "description": "A response of API Gateway itself.",
        "required": ["message"],
        "properties": {"message": {"type": ["string", "null"]}},
        "examples": [{"message": "Unauthorized"}],
    }
    components["responses"] = {
        status.name: _problem(status)
        for status in sorted(texts.BY_THE_API.keys() | texts.BY_THE_GATEWAY)
    }


def _problem(status: HTTPStatus) -> dict[str, Any]:
    said = [texts.BY_THE_API.get(status), texts.BY_THE_GATEWAY.get(status)]
    content: dict[str, Any] = {}
    if status in texts.BY_THE_API:
        content["application/problem+json"] = {"schema": {"$ref": f"{_SCHEMAS}Problem"}}
    if status in texts.BY_THE_GATEWAY:
        content["application/json"] = {"schema": {"$ref": f"{_SCHEMAS}GatewayMessage"}}
    described: dict[str, Any] = {
        "description": " ".join(filter(None, said)),
        "content": content,
    }
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        described["headers"] = texts.WAIT
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
    stands_for = job_requests.ShortJob.spelt
    given = {name: value for name, value in schema["properties"].items() if name != "type"}
    cron = {"type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION}
    short = {
        "taskId": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"},
        "cron": cron | {"description": "Five fields."},
        "params": given["payload"],
    }
    return {
        "type": "object",
        "description": inspect.getdoc(job_requests.ShortJob),
        "required": ["taskId", "cron"],
        "properties": short | {k: v for k, v in given.items() if k not in stands_for},
        "additionalProperties": False,
    }


def _paths(read: dict[str, Any]) -> dict[str, Any]:
    routes = {(route.openapi_path, route.method.lower()): route for route in routes_of(app)}
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
        operation.setdefault("parameters", []).append(texts.IDEMPOTENCY_KEY)
    needs = operation.pop(SCOPE)
    operation.pop(NOT_STORED, None)
    also = [HTTPStatus(status) for status in operation.pop(PROBLEMS, [])]
    operation["responses"].pop("422")
    statuses = {*texts.ALWAYS, *also}
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
    "JobResponse": ("jobId", "$response.body#/jobId"),
    "JobDetail": ("jobId", "$response.body#/jobId"),
    "JobPage": ("jobId", "$response.body#/items/0/jobId"),
    "ExecutionResponse": ("executionId", "$response.body#/executionId"),
    "ExecutionPage": ("executionId", "$response.body#/items/0/executionId"),
}
"""By response class: the parameter that takes its id, and the place of the id."""


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
