"""The client has every operation and parameter of the API."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from pydantic.alias_generators import to_snake

from functions.api import openapi_texts
from functions.api.openapi import description
from functions.api.operation import RESPONSES
from nextfire import Client
from nextfire.client import Bearer, errors, requests
from nextfire.responses.base import ApiResponse
from nextfire.responses.reading import field_types

DOCUMENT = description()
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: operation
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
}
PLACES = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
GIVEN: dict[str, Any] = {
    **{name: {"name": "n"} for name in ("job", "changes", "schedule", "labels")},
    **dict.fromkeys(("from_", "to"), "2026-05-24T12:00:00Z"),
    "jobs": [],
    "scopes": [],
    "name": "n",
    "size": 1,
    "sha256": "0",
    "handler": "h",
}
"""A value for each required argument that is not part of a path."""
WHOLE = {
    "JobRequest": "job",
    "JobPatch": "changes",
    "PreviewRequest": "schedule",
}
"""Body schemas that a method takes as one argument."""
_RESERVED = {"from", "in", "is"}


def pythonic(name: str) -> str:
    snake = re.sub(r"_(?=[0-9])", "", to_snake(name.replace("-", "_")))  # sha256
    return f"{snake}_" if snake in _RESERVED else snake


def name_of(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:  # the long or the short form of a job
        schema = schema["anyOf"][0]
    return str(schema.get("$ref", "")).rpartition("/")[2]


def arguments(operation: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", []):
        yield pythonic(parameter["name"])
    if body := operation.get("requestBody"):
        name = name_of(body["content"]["application/json"]["schema"])
        if name in WHOLE:
            yield WHOLE[name]
        else:
            yield from map(pythonic, SCHEMAS[name]["properties"])


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_each_operation_is_a_method_with_all_that_it_takes(operation_id: str) -> None:
    method = getattr(Client, to_snake(operation_id), None)
    assert method is not None, f"add {to_snake(operation_id)} to a module of nextfire.client"

    signature = inspect.signature(method)
    assert {*signature.parameters} - {"self"} == {*arguments(OPERATIONS[operation_id])}
    assert method.__doc__


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_each_operation_calls_its_path_with_what_it_is_given(operation_id: str) -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append((request.method, request.url.raw_path.decode()))
        return httpx2.Response(200, json={"items": []})

    caller = Client("http://127.0.0.1:1", auth=Bearer("k"), transport=httpx2.MockTransport(answer))
    method, path = PLACES[operation_id]
    call = getattr(caller, to_snake(operation_id))
    named = {pythonic(name): f"{name}/ü" for name in re.findall(r"{(\w+)}", path)}
    needed = {
        name: GIVEN[name]
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.default is parameter.empty and name not in named
    }

    call(**named, **needed)

    expected = re.sub(r"{(\w+)}", r"\1%2F%C3%BC", path)
    assert asked == [(method, expected)]


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_each_operation_returns_the_response_of_its_route(operation_id: str) -> None:
    returned = inspect.signature(getattr(Client, to_snake(operation_id))).return_annotation

    names = {
        name_of(answer["content"]["application/json"]["schema"])
        for status, answer in OPERATIONS[operation_id]["responses"].items()
        if status.startswith("2")
    }
    assert {name or "dict[str, Any]" for name in names} == {str(returned)}


@pytest.mark.parametrize("name", ["JobRequest", "PreviewRequest"])
def test_what_is_sent_whole_has_the_fields_of_its_schema(name: str) -> None:
    model = getattr(requests, name)

    aliases = {field.alias for field in model.model_fields.values()}
    assert aliases == SCHEMAS[name]["properties"].keys()


@pytest.mark.parametrize("response", sorted(RESPONSES, key=str))
def test_the_examples_are_read(response: type[ApiResponse]) -> None:
    for example in SCHEMAS[response.__name__].get("examples", ()):
        read = response(example)
        for name in field_types(response):
            getattr(read, name)


def test_what_the_gateway_answers_is_what_the_description_lists() -> None:
    assert errors.BY_GATEWAY.keys() == openapi_texts.BY_THE_GATEWAY.keys()
