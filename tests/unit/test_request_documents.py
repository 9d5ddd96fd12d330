"""Documents of requests do not convert values: neither `true` nor "1" is a number."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

import functions.api.routes
from nextfire.domain.document import Document
from nextfire.domain.message import RunMessage, SkippedRange

_CONVERTED = {"int", "float", "bool"}
"""Types for which pydantic accepts other types that it can convert, unless they are strict."""
_OF_REQUESTS = (
    "functions.api.routes.",
    "functions.api.job_requests",
    "nextfire.domain.",
    "nextfire.targets.",
)
"""Modules; other documents are responses."""
_SENT = {RunMessage, SkippedRange}  # by this system, not by users


def documents() -> list[type[Document]]:
    for module in iter_modules(functions.api.routes.__path__):
        import_module(f"functions.api.routes.{module.name}")
    found = [Document]
    for each in found:
        found += each.__subclasses__()
    return [
        each
        for each in dict.fromkeys(found)
        if each not in _SENT and each.__module__.startswith(_OF_REQUESTS)
    ]


def converting(schema: Any, path: str = "") -> Iterator[str]:
    """The paths in a core schema at which a value is converted."""
    if isinstance(schema, dict):
        kind = schema.get("type")  # or the schema of a field of that name
        if isinstance(kind, str) and kind in _CONVERTED and not schema.get("strict"):
            yield path
        for name, part in schema.items():
            # Definitions are those of any JSON value, and of documents that are tested themselves.
            if name not in {"metadata", "definitions"}:
                yield from converting(part, f"{path}/{name}")
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from converting(part, path)


@pytest.mark.parametrize("document", documents(), ids=lambda each: each.__name__)
def test_numbers_and_booleans_are_not_converted(document: type[Document]) -> None:
    document.model_rebuild(force=True)

    assert [*converting(document.__pydantic_core_schema__)] == []


def test_a_field_that_is_converted_is_found() -> None:
    RunMessage.model_rebuild(force=True)

    assert [*converting(RunMessage.__pydantic_core_schema__)]
