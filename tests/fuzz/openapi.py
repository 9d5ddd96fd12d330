"""The API as an OpenAPI document, read off the handler's own routes: a new route is fuzzed as soon
as it is there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

from pydantic import BaseModel

from nextfire.domain.job import JobDefinition
from tests.fuzz.items import SCHEDULES

DEFINITIONS = "_definition", JobDefinition.__name__
"""A function of the handler that reads a model, and that model."""
JOBS: list[dict[str, Any]] = [
    each | {"target": {"handler": "hello"}}
    for each in [*SCHEDULES, {"type": "CRON", "schedule": "0 0 1 1 *", "name": "yearly"}]
]
EXAMPLES: dict[str, list[Any]] = {
    JobDefinition.__name__: JOBS,
    "PreviewRequest": [{**each, "count": 3} for each in SCHEDULES],
    "RedrivePoolRequest": [{}, {"limit": 3, "from": "2026-05-24T00:00:00Z"}],
    "ResumeRequest": [{}],
}
REASONS: list[Any] = [{}, {"reason": "the ledger is closed"}]
PARAMETERS: dict[str, list[str]] = {
    "limit": ["1", "100", "0", "-1", "1e3"],
    "count": ["1", "100", "101"],
    "attempt": ["1", "2", "999999999", "0"],
    "state": ["DEAD", "RUNNING"],
    "pool": ["default", "gone"],
    "from": ["2026-05-24T00:00:00Z", "2026-05-24"],
    "to": ["2099-05-24T00:00:00Z", "0001-01-01T00:00:00+14:00"],
    "cursor": ["x", "====", "bGl2aW5n"],
}
PATHS: dict[str, list[str]] = {
    "job_id": ["deleted", "theirs", "a.b", "%00"],
    "execution_id": [
        *("living.20260524T120000000Z-k3x9m2ab", "x", "living.20261324T120000000Z-k3x9m2ab"),
        "theirs.20260524T120000000Z-k3x9m2ab",
    ],
    "pool": ["default", "gone", "%2F"],
}
"""Values of path parameters that are odd; those that are there are added."""


def openapi(handler: ModuleType, ids: dict[str, list[str]]) -> dict[str, Any]:
    """The document for the routes of *handler*'s `app`. *ids*: of path parameters, values that are
    there.
    """
    components: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in [*handler.app._static_routes, *handler.app._dynamic_routes]:  # noqa: SLF001
        path = re.sub(r"<(\w+)>", r"{\1}", route.path)
        operation = _operation(handler, route.func, path, ids, components)
        paths.setdefault(path, {})[route.method.lower()] = operation
    for name in ("post", "patch", "delete"):
        for path, methods in paths.items():
            if name in methods and path.startswith("/v1/jobs"):
                methods[name]["responses"]["2XX"]["links"] = _links(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nextfire", "version": "1"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(
    handler: ModuleType,
    route: Any,
    path: str,
    ids: dict[str, list[str]],
    components: dict[str, Any],
) -> dict[str, Any]:
    names = {*_names(route.__code__)}
    parameters = [
        _parameter(
            name,
            "path",
            # What is deleted is there no more for the others; links lead to what was made.
            [
                *([] if route.__name__.startswith("delete") else ids.get(name, [])),
                *PATHS.get(name, []),
            ],
        )
        for name in re.findall(r"{(\w+)}", path)
    ]
    asked = _texts(route.__code__) if names & {"_number", "query_string_parameters"} else set()
    asked |= {"limit", "cursor"} if "_paging" in names else set()
    parameters += [
        _parameter(name, "query", PARAMETERS.get(name, [])) for name in sorted(asked) if name
    ]
    operation: dict[str, Any] = {
        "operationId": route.__name__,
        "parameters": parameters,
        "responses": {
            "2XX": {"description": "", "content": {"application/json": {"schema": _OBJECT}}},
            "4XX": {
                "description": "",
                "content": {"application/problem+json": {"schema": _PROBLEM}},
            },
        },
    }
    model = _model(handler, names)
    if model is not None:
        schema = model.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
        components.update(schema.pop("$defs", {}))
        components[model.__name__] = schema
        operation["requestBody"] = {
            "required": "_optional_body" not in names,
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            {"enum": EXAMPLES.get(model.__name__, REASONS)},
                            {"$ref": f"#/components/schemas/{model.__name__}"},
                        ]
                    }
                }
            },
        }
    return operation


_OBJECT = {"type": "object"}
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string", "minLength": 1},
        "status": {"type": "integer", "minimum": 400, "maximum": 499},
        "detail": {"type": "string", "minLength": 1},
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["field", "value", "problem", "remedy"],
                "additionalProperties": {"type": "string", "minLength": 1},
            },
        },
    },
}


def _links(paths: dict[str, Any]) -> dict[str, Any]:
    """From an answer that bears a `jobId` to every route of a job."""
    return {
        operation["operationId"]: {
            "operationId": operation["operationId"],
            "parameters": {"job_id": "$response.body#/jobId"},
        }
        for path, methods in paths.items()
        for operation in methods.values()
        if "{job_id}" in path
    }


def _parameter(name: str, where: str, values: list[str]) -> dict[str, Any]:
    """One of *values*: any text beside them would be most of what is tried, and lead nowhere."""
    schema = {"enum": values} if values else {"type": "string"}
    return {"name": name, "in": where, "required": where == "path", "schema": schema}


def _model(handler: ModuleType, names: set[str]) -> type[BaseModel] | None:
    """The document that a route reads, by the names that its code bears."""
    reader, definition = DEFINITIONS
    if reader in names:
        names = names | {definition}
    for name in sorted(names):
        found = getattr(handler, name, None)
        if inspect.isclass(found) and issubclass(found, BaseModel):
            return found
    return None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _texts(code: CodeType) -> set[str]:
    """The words that a route's code holds: among them the query parameters it asks for."""
    words = (text for text in code.co_consts if isinstance(text, str))
    return {word for word in words if re.fullmatch(r"[a-z]{2,12}", word)}
