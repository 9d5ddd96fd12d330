"""Validates responses against the OpenAPI document: a route with another response fails every test
that calls it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs

from functions.api.openapi import description


def check_against_description(method: str, path: str, answer: dict[str, Any]) -> None:
    """Raises:
    AssertionError: The OpenAPI document does not describe *answer* (payload format 2.0).
    """
    status = str(answer["statusCode"])
    headers = {name.lower(): value for name, value in answer["headers"].items()}
    operation = _operation(method.upper(), path.removeprefix("/api"))
    if operation is None:
        assert status in {"403", "404", "405", "429"}, f"{method} {path} is not described"
        return
    response = operation["responses"].get(status)
    assert response is not None, f"{operation['operationId']}: {status} is not described"
    if "$ref" in response:
        response = description()["components"]["responses"][response["$ref"].rpartition("/")[2]]
    content = response["content"].get(headers["content-type"])
    assert content is not None, f"{operation['operationId']}: {status}: {headers['content-type']}"
    for name in response.get("headers", {}):
        assert name.lower() in headers, f"{operation['operationId']}: {status} without {name}"
    schema = content["schema"]
    if "$ref" in schema:
        _validator(schema["$ref"]).validate(json.loads(answer["body"]))


@cache
def _validator(reference: str) -> Any:
    return jsonschema_rs.Draft202012Validator(
        {"$ref": reference, "components": description()["components"]}, validate_formats=True
    )


@cache
def _templates() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    paths = description()["paths"]
    return [
        (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods)
        for path, methods in sorted(paths.items(), key=lambda each: "{" in each[0])
    ]


def _operation(method: str, path: str) -> dict[str, Any] | None:
    for pattern, methods in _templates():
        if pattern.fullmatch(path):
            return methods.get(method.lower())
    return None
