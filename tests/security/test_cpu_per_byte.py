"""No request costs much more CPU than another request of its size. Each is measured as a ratio to
a plain request of the same route, for all routes in the API's own description.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest

from functions.api.body import MAX_BODY_BYTES, MAX_NESTED
from functions.api.bounds import MAX_UNKNOWN_FIELDS
from functions.api.handler import handler as api_handler
from functions.api.openapi import description
from nextfire.domain.definition import MAX_LABELS, MAX_PAYLOAD_BYTES
from nextfire.domain.target import MAX_ENV
from tests.crons import LONG
from tests.integration.deployment import (
    Context,
    Deployment,
    http_event,
    identity,
)

SIZE = MAX_BODY_BYTES - 6 * 1024
"""Size of hostile values: small enough that the body, with the rest of an example, is read."""
MOST = 40.0
"""Multiple of the CPU of a plain body of that size. A body of 8-byte objects takes half of it
because Python creates an object for each. A document with 20,000 errors took more than 100.
"""
MOST_PER_REJECTION = 10.0
"""The same for a body that has more entries than the API reads."""
TRIES = 6
_DEEPEST = 3
_PARAMETER = 4000

Operation = tuple[str, str, dict[str, Any]]


def operations() -> list[Operation]:
    return [
        (method.upper(), path, described)
        for path, methods in description()["paths"].items()
        for method, described in methods.items()
    ]


def with_body() -> list[Operation]:
    return [each for each in operations() if "requestBody" in each[2]]


def _name(operation: Operation) -> str:
    return str(operation[2]["operationId"])


# Hostile values


def _entries(name: Callable[[int], str], value: str, size: int) -> str:
    found, room = list[str](), size
    for number in count():
        found.append(f"{json.dumps(name(number))}:{value}")
        if (room := room - len(found[-1]) - 1) < 0:
            return "{" + ",".join(found) + "}"
    raise AssertionError


def _items(value: str, size: int) -> str:
    return "[" + ",".join([value] * (size // (len(value) + 1))) + "]"


def _text(part: str, size: int) -> str:
    return json.dumps(part * (size // len(part)))


VALUES = ("1", '{"secret":"a"}')
PARTS = ("1,", "*/1 ")
"""Of texts: lists and fields of a cron expression."""


@cache
def hostile_values(size: int) -> list[str]:
    """JSON texts of about *size* bytes."""
    return [*_hostile_values(size)]


def _hostile_values(size: int) -> Iterator[str]:
    """JSON texts of about *size* bytes."""
    for value in VALUES:
        yield _entries(lambda n: f"a{n}", value, size)
    yield _entries(lambda n: f"{n}", "[]", size)
    for item in ("{}", '"2030-05-24T10:00:00Z"'):
        yield _items(item, size)
    for part in PARTS:
        yield _text(part, size)
    yield "0." + "1" * size
    yield "[" + ",".join(["[" * 25 + "]" * 25] * (size // 51)) + "]"


def hostile_bodies() -> Iterator[str]:
    yield _entries(lambda n: f"a{n}", "1", SIZE)
    yield _entries(lambda n: f"typ{n}", "{}", SIZE)
    yield _entries(lambda n: "x" * (SIZE - 9) + str(n), "1", 1)
    yield "{" + ",".join(['"a":1'] * (SIZE // 6)) + "}"
    yield "{" + " " * SIZE + "}"
    yield "{" * (SIZE // 2)


# Where to put them


def _resolved(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The variants of *schema*."""
    if "$ref" in schema:
        return _resolved(description()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    forms = [form for kind in ("anyOf", "oneOf", "allOf") for form in schema.get(kind, [])]
    return [each for form in forms for each in _resolved(form)] if forms else [schema]


Place = tuple[str, ...]
"""Names of fields; `*` stands for an entry of a map, `#` for the items of a list."""


def places(schema: dict[str, Any], deep: int = 0) -> Iterator[Place]:
    """All fields of a document of *schema*, including nested fields."""
    for form in _resolved(schema) if deep < _DEEPEST else ():
        below = dict[str, Any](form.get("properties", {}))
        if isinstance(form.get("additionalProperties"), dict):
            below["*"] = form["additionalProperties"]
        if isinstance(form.get("items"), dict):
            below["#"] = form["items"]
        for name, inner in below.items():
            yield (name,)
            yield from ((name, *rest) for rest in places(inner, deep + 1))


def put(document: Any, place: Place, value: str) -> str:
    """*document* as JSON, with *value* at *place* and otherwise unchanged."""
    marker = "\0here\0"

    def placed(within: Any, rest: Place) -> Any:
        if not rest:
            return marker
        if rest[0] == "#":
            first = within[0] if isinstance(within, list) and within else None
            return [placed(first, rest[1:])]
        name = "a" if rest[0] == "*" else rest[0]
        known = dict(within) if isinstance(within, dict) else {}
        return known | {name: placed(known.get(name), rest[1:])}

    return json.dumps(placed(document, place)).replace(json.dumps(marker), value)


def _body(operation: Operation) -> tuple[dict[str, Any], list[Any]]:
    """The schema of the body, and an example of each of its variants."""
    [content] = operation[2]["requestBody"]["content"].values()
    examples = [each["value"] for each in content.get("examples", {}).values()]
    return content["schema"], examples or [{}]


def fields(operation: Operation) -> list[Place]:
    schema, _ = _body(operation)
    found = {*places(schema)}
    if operation[0] == "PATCH":  # its description names no fields: they are those of a job
        found |= {*places({"$ref": "#/components/schemas/JobRequest"})}
    return sorted(found)


# Their cost


class Api:
    """Sends requests and measures the CPU time of the answers."""

    def __init__(self, system: Deployment) -> None:
        assert system.call("GET", "/v1/health").status == 200

    def ask(
        self, operation: Operation, body: str | None = None, **more: dict[str, str]
    ) -> tuple[float, dict[str, Any]]:
        method, path, _ = operation
        for name in ("jobId", "job_id"):
            path = path.replace(f"{{{name}}}", "some-job")
        path = path.replace("{", "").replace("}", "")
        event = http_event(
            method, path, body, query=more.get("query"), authorizer=identity("123456789012")
        )
        event["headers"] |= more.get("headers", {})
        began = time.process_time()
        answer = api_handler(event, Context())
        return time.process_time() - began, answer

    def cost(self, operation: Operation, body: str | None = None, **more: dict[str, str]) -> float:
        took, answer = self.ask(operation, body, **more)
        assert answer["statusCode"] < 500, (_name(operation), (body or "")[:200], answer["body"])
        return took


@pytest.fixture
def api(system: Deployment) -> Api:
    return Api(system)


def check(
    plain: Callable[[], float], attack: Callable[[], float], what: str, most: float = MOST
) -> float:
    """Repeat the measurement until the ratio is within bounds: load can only make it larger."""
    lowest, least = float("inf"), float("inf")
    for _ in range(TRIES):
        lowest, least = min(lowest, plain()), min(least, attack())
        if least <= most * lowest:
            return least / lowest
    raise AssertionError(
        f"{what}: {least / lowest:.0f} times the CPU of a plain one ({least:.3f} s)"
    )


PLAIN = json.dumps({"unknown": ["x" * 10] * (SIZE // 14)})


def attacks(operation: Operation) -> Iterator[tuple[str, str]]:
    """Hostile bodies, each with the place of the hostile value."""
    yield from (("body", body) for body in hostile_bodies())
    example = _body(operation)[1][0]
    for place in fields(operation):
        for value in hostile_values(SIZE):
            yield ".".join(place), put(example, place, value)


@pytest.mark.skipif(not LONG, reason="takes minutes: make test-long")
@pytest.mark.parametrize("operation", with_body(), ids=_name)
def test_no_body_costs_much_more_than_a_plain_one_of_its_size(
    api: Api, operation: Operation
) -> None:
    api.cost(operation, PLAIN)  # warms up the process
    baseline = min(api.cost(operation, PLAIN) for _ in range(3))
    worst = (0.0, "")

    for place, body in attacks(operation):
        took = api.cost(operation, body)
        if took > MOST * baseline:
            took = (
                baseline
                * check(
                    lambda: api.cost(operation, PLAIN),
                    lambda body=body: api.cost(operation, body),  # type: ignore[misc]
                    f"{_name(operation)}, {place}: {body[:60]}… {body[-20:]}",
                )
            )
        worst = max(worst, (took / baseline, f"{place}: {body[:60]}"))

    print(f"{_name(operation)}: {worst[0]:.1f} times, {worst[1]}")  # noqa: T201 — shown by `-rP`


TOO_MUCH: dict[str, Place] = {
    "variables": ("target", "env"),
    "labels": ("labels",),
    "states": ("retryPolicy", "retryOn", "states"),
    "fields": (),
}


@pytest.mark.parametrize("place", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("operation", ["createJob", "putJob", "changeJob"])
def test_what_is_too_much_is_refused_before_it_is_read(
    system: Deployment, api: Api, operation: str, place: Place
) -> None:
    system.register(jobId="some-job")
    [found] = [each for each in operations() if _name(each) == operation]
    value = _entries(lambda n: f"a{n}", "1", SIZE)
    if place[-1:] == ("states",):
        value = _items('"x"', SIZE)
    body = put(job(), place, value) if place else value

    ratio = check(
        lambda: api.cost(found, PLAIN),
        lambda: api.cost(found, body),
        f"{operation}: {'.'.join(place)}",
        MOST_PER_REJECTION,
    )
    print(f"{operation}, {'.'.join(place)}: {ratio:.1f} times")  # noqa: T201 — shown by `-rP`


def job(**changes: Any) -> dict[str, Any]:
    return {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "x"}} | changes


FULL: dict[str, dict[str, Any]] = {
    "variables": job(target={"handler": "x", "env": {f"a{n}": {} for n in range(MAX_ENV)}}),
    "names of variables": job(target={"handler": "x", "env": dict.fromkeys(map(str, range(64)))}),
    "labels": job(labels={f"a{n}": 1 for n in range(MAX_LABELS)}),
    "unknown fields": job(**{f"typ{n}": 1 for n in range(MAX_UNKNOWN_FIELDS)}),
    "all": job(
        target={"handler": "x", "env": {f"a{n}": {} for n in range(MAX_ENV)}},
        labels={f"a{n}": 1 for n in range(MAX_LABELS)},
        **{f"typ{n}": 1 for n in range(MAX_UNKNOWN_FIELDS)},
    ),
}


@pytest.mark.parametrize("kind", FULL)
def test_a_batch_of_jobs_that_have_all_the_errors_they_may_have(api: Api, kind: str) -> None:
    [batch] = [each for each in operations() if each[1] == "/v1/jobs:batch"]
    body = json.dumps({"jobs": [FULL[kind]] * 100})
    plain = json.dumps({"jobs": [{"unknown": "x" * (len(body) // 100)}] * 100})

    print(kind, check(lambda: api.cost(batch, plain), lambda: api.cost(batch, body), kind))  # noqa: T201 — shown by `-rP`


@pytest.mark.parametrize("operation", operations(), ids=_name)
def test_no_parameter_costs_much_more_than_none(api: Api, operation: Operation) -> None:
    body = json.dumps(_body(operation)[1][0]) if "requestBody" in operation[2] else None
    described = [each for each in operation[2].get("parameters", []) if "name" in each]
    names = [each["name"] for each in described if each.get("in") == "query"]
    headers = ["If-Match", "If-None-Match", "Idempotency-Key"]
    hostile: list[dict[str, dict[str, str]]] = [{"query": {f"a{n}": "b" for n in range(1000)}}]
    for part in (*PARTS, "a:b,", '"a", ', "A"):
        text = part * (_PARAMETER // len(part))
        hostile += [{"query": {name: text}} for name in names]
        hostile += [{"headers": {name: text + text}} for name in headers]
    api.cost(operation, body)

    for attack in hostile:
        check(
            lambda: max(api.cost(operation, body), 0.002),
            lambda attack=attack: api.cost(operation, body, **attack),  # type: ignore[misc]
            f"{_name(operation)}, {str(attack)[:80]}",
        )


# Error messages


@pytest.mark.parametrize(
    ("changes", "field", "most"),
    [
        ({"target": {"handler": "x", "env": {f"a{n}": "" for n in range(65)}}}, "target.env", 64),
        ({"labels": {f"a{n}": "" for n in range(33)}}, "labels", 32),
        (
            {"retryPolicy": {"retryOn": {"exitCodes": [1] * 65}}},
            "retryPolicy.retryOn.exitCodes",
            64,
        ),
        ({"retryPolicy": {"retryOn": {"states": ["FAILED"] * 4}}}, "retryPolicy.retryOn.states", 3),
    ],
)
def test_what_is_too_much_is_named_with_its_count_its_limit_and_a_remedy(
    system: Deployment, changes: dict[str, Any], field: str, most: int
) -> None:
    for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/jobs/a")):
        refused = system.call(method, path, job(**changes))

        assert refused.status == 422
        assert refused.fault == {
            "field": field,
            "value": f"'{most + 1} entries'",
            "problem": f"more than {most} entries",
            "remedy": f"Send at most {most}.",
        }


def test_what_is_at_its_limit_is_taken(system: Deployment) -> None:
    full = job(
        target={"handler": "x", "env": {f"a{n}": "" for n in range(MAX_ENV)}},
        labels={f"a{n}": "" for n in range(MAX_LABELS)},
    )

    assert system.call("POST", "/v1/jobs", full).status == 201


def test_unknown_fields_are_named_up_to_a_number(system: Deployment) -> None:
    few = system.call("POST", "/v1/jobs", job(**{f"a{n}": 1 for n in range(MAX_UNKNOWN_FIELDS)}))
    many = system.call("POST", "/v1/jobs", job(**{f"a{n}": 1 for n in range(100)}))

    assert len(few.document["errors"]) == 20
    assert many.fault["field"] == "body"


def test_arrays_and_objects_are_counted_but_not_those_in_texts(system: Deployment) -> None:
    refused = system.call("POST", "/v1/jobs", text='{"x": [' + "[]," * 40_000 + "[]]}")
    read = system.call("POST", "/v1/jobs", text='{"x": "' + '\\"[]{' * 40_000 + '"}')

    assert refused.fault["problem"] == f"more than {MAX_NESTED} arrays and objects"
    assert "x" in {fault["field"] for fault in read.document["errors"]}


def test_a_payload_of_arrays_alone_is_taken(system: Deployment) -> None:
    payload = "[" + ",".join(["[" * 20 + "]" * 20] * (MAX_PAYLOAD_BYTES // 41 - 1)) + "]"
    text = json.dumps(job(payload="here")).replace('"here"', payload)

    assert system.call("POST", "/v1/jobs", text=text).status == 201


def test_a_query_of_too_much_is_refused(system: Deployment) -> None:
    labels = ",".join(f"a{n}:b" for n in range(MAX_LABELS + 1))

    assert "33 labels" in system.call("GET", "/v1/jobs", query={"label": labels}).fault["value"]
    long = system.call("GET", "/v1/jobs", query={"name": "x" * 4097})
    assert long.fault["problem"] == "longer than 4096 characters"
    tags = system.call("DELETE", "/v1/jobs/a", headers={"If-Match": '"a", ' * 1000})
    assert tags.fault["field"] == "If-Match"
