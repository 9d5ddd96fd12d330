"""The API's description: complete, valid, and correct. `Deployment.answer` also checks every answer
of every test against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from docs.reference import PAGE, page
from functions.api.app import app
from functions.api.openapi import description
from functions.api.operation import OPEN, SCOPE
from functions.api.resolver_parts import routes_of
from nextfire.domain.keys import Scope
from tests.integration.deployment import Answer, Deployment

DOCUMENT = description()  # includes all routes
ROUTES: list[Any] = routes_of(app)
OPERATIONS = {
    operation["operationId"]: operation
    for methods in DOCUMENT["paths"].values()
    for operation in methods.values()
}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from nodes(inner)


def found(reference: str) -> Any:
    place: Any = DOCUMENT
    for step in reference.removeprefix("#/").split("/"):
        place = place[step]
    return place


def valid(schema: dict[str, Any], value: object) -> bool:
    whole = {**schema, "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True).is_valid(value)


class TestDocument:
    def test_every_route_is_in_it(self) -> None:
        described = {
            (method.upper(), re.sub(r"\W|_", "", path).lower())
            for path, methods in DOCUMENT["paths"].items()
            for method in methods
        }

        assert described == {
            (route.method, re.sub(r"\W|_", "", route.openapi_path).lower()) for route in ROUTES
        }
        assert len(OPERATIONS) == len(ROUTES), "operation ids are unique"

    def test_every_route_says_which_scope_it_needs(self) -> None:
        for route in ROUTES:
            assert route.openapi_extensions[SCOPE] in {OPEN, *Scope}, route.path
            if route.openapi_extensions[SCOPE] == OPEN:
                assert route.path == "/v1/health"
            if route.method == "GET":
                assert route.openapi_extensions[SCOPE] != Scope.WRITE, route.path

    def test_it_is_openapi(self) -> None:
        schema = schemathesis.openapi.from_dict(DOCUMENT)
        schema.validate()

        assert DOCUMENT["openapi"].startswith("3.1")
        operations: list[Any] = list(schema.get_all_operations())
        assert {each.ok().label for each in operations} == {
            f"{method.upper()} {path}"
            for path, methods in DOCUMENT["paths"].items()
            for method in methods
        }

    def test_every_reference_leads_somewhere_and_every_schema_is_one(self) -> None:
        for node in nodes(DOCUMENT):
            if "$ref" in node:
                assert found(node["$ref"]) is not None
        for schema in DOCUMENT["components"]["schemas"].values():
            jsonschema_rs.meta.validate(schema)

    def test_nothing_is_described_that_no_route_has(self) -> None:
        used = {node["$ref"] for node in nodes(DOCUMENT) if "$ref" in node}

        kept = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
        assert kept <= used

    def test_examples_are_what_they_are_examples_of(self) -> None:
        for name, schema in DOCUMENT["components"]["schemas"].items():
            for part in nodes(schema):
                for example in part.get("examples", []):
                    assert valid(part, example), f"correct the example {example} in {name}"
        for name, operation in OPERATIONS.items():
            if "requestBody" not in operation:
                continue
            content = operation["requestBody"]["content"]["application/json"]
            for example in content.get("examples", {}).values():
                assert valid(content["schema"], example["value"]), name

    def test_parameters_are_described_as_they_are_taken(self) -> None:
        examples = {
            ("revokeKey", "keyId"): ("3f9c0a77d1e2b456", "3f9c"),
            ("createJob", "Idempotency-Key"): ("k" * 128, "k" * 129),
            ("createKey", "Idempotency-Key"): ("6f1c0a52-8d1b", "with a space"),
        }
        for (name, parameter), (good, bad) in examples.items():
            (found,) = [p for p in OPERATIONS[name]["parameters"] if p["name"] == parameter]
            assert valid(found["schema"], good)
            assert not valid(found["schema"], bad)
            assert not valid(found["schema"], "")

    def test_an_answer_that_bears_an_id_leads_to_all_that_is_done_with_it(self) -> None:
        links = OPERATIONS["createJob"]["responses"]["201"]["links"]

        assert links.keys() == {
            operation["operationId"]
            for path, methods in DOCUMENT["paths"].items()
            for operation in methods.values()
            if "{jobId}" in path
        }

    def test_every_problem_is_documented(self) -> None:
        for name, operation in OPERATIONS.items():
            assert {"422", "429", "500", "503"} <= operation["responses"].keys(), name
            if operation.get("security") != []:
                assert {"401", "403"} <= operation["responses"].keys(), name
            if "requestBody" in operation:
                assert {"400", "413"} <= operation["responses"].keys(), name
        for response in DOCUMENT["components"]["responses"].values():
            assert response["description"]
            assert response["content"]

    def test_what_a_body_may_hold_is_what_is_taken(self, system: Deployment) -> None:
        for path in ("/v1/jobs", "/v1/schedules/preview"):
            content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            for example in content["examples"].values():
                assert system.call("POST", path, example["value"]).status < 300

    def test_the_reference_page_is_what_it_would_be_written_as(self) -> None:
        assert PAGE.read_text() == page(), "run: make docs"

    def test_the_reference_page_leads_nowhere_that_is_not_there(self) -> None:
        text = page()
        headings = {line.lstrip("# ").lower() for line in text.splitlines() if line[:1] == "#"}

        assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings
        for path, methods in DOCUMENT["paths"].items():
            for method in methods:
                assert f"{method} {path}".lower() in headings


class TestServed:
    @pytest.mark.parametrize("path", ["/v1/openapi.json", "/api/v1/openapi.json"])
    def test_it_is_served(self, system: Deployment, path: str) -> None:
        answer = system.call("GET", path)

        assert (answer.status, answer.media_type) == (200, "application/json")
        assert answer.document == json.loads(json.dumps(DOCUMENT))

    def test_it_is_made_once_in_a_process(self) -> None:
        assert description() is description()


class TestUnknownNames:
    @pytest.mark.parametrize(
        ("body", "field", "remedy"),
        [
            ({"timeout_sec": 60}, "timeout_sec", "Did you mean `timeoutSec`?"),
            ({"timeoutsec": 60}, "timeoutsec", "Did you mean `timeoutSec`?"),
            ({"retryPolicy": {"max_attempts": 1}}, "retryPolicy.max_attempts", "`maxAttempts`?"),
            ({"retryPolicy": {"retryOn": {"state": []}}}, "retryPolicy.retryOn.state", "`states`?"),
            ({"target": {"handler": "a", "pol": "x"}}, "target.pol", "Did you mean `pool`?"),
            (
                {"target": {"handler": "a", "env": {"K": {"secret": "a", "kye": "b"}}}},
                "target.env.K.kye",
                "Did you mean `key`?",
            ),
            ({"colour": 1}, "colour", "Omit this field, or check its spelling"),
            ({"revision": 1}, "revision", "It is a field of responses only: omit it."),
            ({"nextFireAt": "x"}, "nextFireAt", "It is a field of responses only: omit it."),
        ],
    )
    def test_field(self, system: Deployment, body: dict[str, Any], field: str, remedy: str) -> None:
        job = {"type": "CRON", "schedule": "* * * * *", "target": {"handler": "hello"}}
        system.call("POST", "/v1/jobs", job | {"jobId": "a"})

        for answer in (
            system.call("POST", "/v1/jobs", job | body),
            system.call("PATCH", "/v1/jobs/a", body),
        ):
            assert answer.status == 422
            assert answer.fault["field"] == field
            assert remedy in answer.fault["remedy"]

    @pytest.mark.parametrize(
        ("path", "name", "remedy"),
        [
            ("/v1/jobs", "limt", "Did you mean `limit`?"),
            ("/v1/jobs/a/upcoming", "limit", "Available: count."),
            ("/v1/jobs/a", "verbose", "Omit it: none exist."),
            ("/v1/health", "x", "Omit it: none exist."),
        ],
    )
    def test_query_parameter(self, system: Deployment, path: str, name: str, remedy: str) -> None:
        answer: Answer = system.call("GET", path, query={name: "1"})

        assert answer.status == 422
        assert (answer.fault["field"], answer.fault["remedy"]) == (name, remedy)
