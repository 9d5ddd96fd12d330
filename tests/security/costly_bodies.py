"""Values that cost the API as much as their size allows, and the fields of bodies to put them in,
for all routes in the API's own description.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

from functions.api.body import MAX_BODY_BYTES
from functions.api.openapi import description

SIZE = MAX_BODY_BYTES - 6 * 1024
"""Size of hostile values: small enough that the body, with the rest of an example, is read."""
_DEEPEST = 3
Operation = tuple[str, str, dict[str, Any]]


def operations() -> list[Operation]:
    return [
        (method.upper(), path, described)
        for path, methods in description()["paths"].items()
        for method, described in methods.items()
    ]


def with_body() -> list[Operation]:
    return [each for each in operations() if "requestBody" in each[2]]


def name_of(operation: Operation) -> str:
    return str(operation[2]["operationId"])


def entries(name: Callable[[int], str], value: str, size: int) -> str:
    found, room = list[str](), size
    for number in count():
        found.append(f"{json.dumps(name(number))}:{value}")
        if (room := room - len(found[-1]) - 1) < 0:
            return "{" + ",".join(found) + "}"
    raise AssertionError


def items(value: str, size: int) -> str:
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
        yield entries(lambda n: f"a{n}", value, size)
    yield entries(lambda n: f"{n}", "[]", size)
    for item in ("{}", '"2030-05-24T10:00:00Z"'):
        yield items(item, size)
    for part in PARTS:
        yield _text(part, size)
    yield "0." + "1" * size
    yield "[" + ",".join(["[" * 25 + "]" * 25] * (size // 51)) + "]"


def hostile_bodies() -> Iterator[str]:
    yield entries(lambda n: f"a{n}", "1", SIZE)
    yield entries(lambda n: f"typ{n}", "{}", SIZE)
    yield entries(lambda n: "x" * (SIZE - 9) + str(n), "1", 1)
    yield "{" + ",".join(['"a":1'] * (SIZE // 6)) + "}"
    yield "{" + " " * SIZE + "}"
    yield "{" * (SIZE // 2)


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


def body_of(operation: Operation) -> tuple[dict[str, Any], list[Any]]:
    """The schema of the body, and an example of each of its variants."""
    [content] = operation[2]["requestBody"]["content"].values()
    examples = [each["value"] for each in content.get("examples", {}).values()]
    return content["schema"], examples or [{}]


def fields(operation: Operation) -> list[Place]:
    schema, _ = body_of(operation)
    found = {*places(schema)}
    if operation[0] == "PATCH":  # its description names no fields: they are those of a job
        found |= {*places({"$ref": "#/components/schemas/JobRequest"})}
    return sorted(found)


def job(**changes: Any) -> dict[str, Any]:
    return {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "x"}} | changes
