"""The client knows every operation, parameter and field of the API: none can be forgotten."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic.alias_generators import to_snake

import functions.api.handler  # noqa: F401 — includes the routes
from functions.api import openapi
from functions.api.openapi import description
from nextfire import Client
from nextfire.client import Bearer, errors, models
from nextfire.client.models import Answer, fields, written

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
"""Some of each argument that must be given and is in no path."""
WHOLE = {
    "JobRequest": "job",
    "JobPatch": "changes",
    "PreviewRequest": "schedule",
}
"""Bodies that a method takes as one argument, by their schemas."""
_RESERVED = {"from", "in", "is"}


def pythonic(name: str) -> str:
    snake = re.sub(r"_(?=[0-9])", "", to_snake(name.replace("-", "_")))  # sha256
    return f"{snake}_" if snake in _RESERVED else snake


def name_of(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:  # a job in the long form or the short one
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
    assert method is not None, f"add {to_snake(operation_id)} to nextfire.client.api.Client"

    signature = inspect.signature(method)
    assert {*signature.parameters} - {"self"} == {*arguments(OPERATIONS[operation_id])}
    assert method.__doc__


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_each_operation_calls_its_path_with_what_it_is_given(operation_id: str) -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.raw_path.decode()))
        return httpx.Response(200, json={"items": []})

    caller = Client("http://127.0.0.1:1", auth=Bearer("k"), transport=httpx.MockTransport(answer))
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
def test_each_operation_returns_its_document(operation_id: str) -> None:
    returned = inspect.signature(getattr(Client, to_snake(operation_id))).return_annotation

    answers = {
        name_of(answer["content"]["application/json"]["schema"]).removesuffix("Answer")
        for status, answer in OPERATIONS[operation_id]["responses"].items()
        if status.startswith("2")
    }
    assert {str(returned)} == (answers if answers != {""} else {"dict[str, Any]"})


def answered() -> Iterator[str]:
    """The schemas that answers are made of."""
    todo = [
        name_of(answer["content"]["application/json"]["schema"])
        for operation in OPERATIONS.values()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    ]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen or "properties" not in SCHEMAS.get(name, {}):
            continue
        seen.add(name)
        yield name
        todo += [found.rpartition("/")[2] for found in re.findall(r"'#/[\w/]+", str(SCHEMAS[name]))]


def model_of(name: str) -> type[Answer]:
    found = getattr(models, name.removesuffix("Answer").removeprefix("Unreadable"), None)
    assert found is not None, f"add a model of {name} to nextfire.client.models"
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", sorted(answered()))
def test_each_document_has_a_model_with_its_fields(name: str) -> None:
    schema, known = SCHEMAS[name], fields(model_of(name))

    by_alias = {written(field): kind for field, kind in known.items()}
    if name.startswith("Unreadable"):
        assert schema["properties"].keys() <= by_alias.keys()
        return
    # What has an unreadable form has that one's reason.
    forms = {f"Unreadable{each.__name__}" for each in model_of(name).__mro__}
    unreadable = {"reason"} if forms & SCHEMAS.keys() else set()
    assert by_alias.keys() - unreadable == schema["properties"].keys() - unreadable
    if any("default" in given for given in schema["properties"].values()):
        return  # part of what is sent, too: what has a default may be left out there
    always = {field for field, kind in by_alias.items() if not kind.optional}
    assert always - {"payload"} <= {*schema["required"]}
    may_be_null = {"schedule"}
    assert {*schema["required"]} - always <= may_be_null


@pytest.mark.parametrize("name", ["JobRequest", "PreviewRequest"])
def test_what_is_sent_whole_has_the_fields_of_its_schema(name: str) -> None:
    model = getattr(models, name)

    aliases = {field.alias for field in model.model_fields.values()}
    assert aliases == SCHEMAS[name]["properties"].keys()


@pytest.mark.parametrize(
    "name", [name for name in sorted(answered()) if "examples" in SCHEMAS[name]]
)
def test_the_examples_are_read(name: str) -> None:
    model = model_of(name)
    for example in SCHEMAS[name]["examples"]:
        answer = model(example)
        for field in fields(model):
            getattr(answer, field)


def test_what_the_gateway_answers_is_what_the_description_lists() -> None:
    assert errors.BY_GATEWAY.keys() == openapi.BY_THE_GATEWAY.keys()
