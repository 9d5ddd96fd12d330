"""Parses request bodies: strict JSON of bounded size and depth."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from functions.api.problems import MalformedError
from nextfire.domain.errors import InvalidInputError, shorten
from nextfire.domain.json_text import reject_constant

MAX_BODY_BYTES = 256 * 1024
MAX_NESTING = 32
MAX_NESTED = 32 * 1024
"""Maximum number of arrays and objects in a body: creating one costs as much CPU as reading a long
string. A payload of the maximum size cannot contain more.
"""
_TOO_DEEP = 1000
_TOO_DEEPLY_NESTED = f"The body is nested too deeply: the maximum is {MAX_NESTING} levels."
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def read_body(text: str) -> dict[str, Any]:
    """Parse *text* as a JSON object.

    Raises:
        MalformedError: *text* is not a JSON object.
        InvalidInputError: *text* is too large or too deeply nested.
    """
    try:
        size = len(text.encode())  # raises for a lone surrogate
    except ValueError as error:
        raise MalformedError("The body is not UTF-8 text.") from error
    if size > MAX_BODY_BYTES:
        raise InvalidInputError(
            "body", f"{len(text)} characters", f"larger than {MAX_BODY_BYTES} bytes", "Shorten it."
        )
    if (nested := _nested(text)) > MAX_NESTED:
        if "[" * _TOO_DEEP in text:
            raise MalformedError(_TOO_DEEPLY_NESTED)
        raise InvalidInputError(
            "body",
            f"{nested} arrays and objects",
            f"more than {MAX_NESTED} arrays and objects",
            f"Send at most {MAX_NESTED}, or encode a part of them as a string.",
        )
    try:
        body = read_json(text, pairs=_without_duplicates)
    except ValueError as error:
        raise MalformedError(f"The body is not JSON: {error}.") from error
    except RecursionError as error:
        raise MalformedError(_TOO_DEEPLY_NESTED) from error
    if not isinstance(body, dict):
        raise MalformedError("The body is not a JSON object.")
    if (depth := _depth(body)) > MAX_NESTING:
        raise InvalidInputError(
            "body", f"{depth} levels", f"nested deeper than {MAX_NESTING}", "Flatten it."
        )
    return body


def _nested(text: str) -> int:
    """The number of arrays and objects in *text*; an upper bound if that is within the limit."""
    most = text.count("[") + text.count("{")
    if most <= MAX_NESTED:
        return most
    bare = _TEXT.sub("", text)  # ignore brackets within strings
    return bare.count("[") + bare.count("{")


def read_json(
    text: str | bytes, *, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None
) -> Any:  # noqa: ANN401 — any JSON
    """Parse *text* as JSON that can be serialized again. *pairs*: builds objects.

    Raises:
        ValueError, RecursionError: *text* is not such JSON.
    """
    return json.loads(
        text, parse_constant=reject_constant, parse_float=_finite, object_pairs_hook=pairs
    )


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of *pairs*. Raises ValueError for a duplicate name, which is ambiguous."""
    found = dict(pairs)
    if len(found) < len(pairs):
        # A body can hold 30,000 names: count them in linear time.
        times = Counter(name for name, _ in pairs)
        twice = next(name for name in times if times[name] > 1)
        raise ValueError(f"the name {shorten(twice)} occurs twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{shorten(text)} is too large for a JSON number")
    return number


def _depth(value: object) -> int:
    """How deep lists and objects are nested; 0 for a plain value. A loop: input is hostile."""
    depth, level = 0, [value]
    while level := [
        inner
        for outer in level
        if isinstance(outer, dict | list)
        for inner in ([None, *outer.values()] if isinstance(outer, dict) else [None, *outer])
    ]:
        depth += 1
    return depth
