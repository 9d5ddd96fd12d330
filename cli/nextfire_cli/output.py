"""Forms of the output: for people, or for programs."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any


class Output(StrEnum):
    """The values of the option --output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


_LISTS = ("items", "results", "runs")
_NAMES = (
    "context",
    "executionId",
    "jobId",
    "keyId",
    "endpoint",
    "handler",
    "version",
    "messageId",
    "name",
)


def names(document: object) -> Iterator[str]:
    """The id of each thing in *document*: of its items, or of itself."""
    if not isinstance(document, dict):
        return
    found = next((document[name] for name in _LISTS if isinstance(document.get(name), list)), None)
    for each in [document] if found is None else found:
        if (name := _name(each)) is not None:
            yield name


def _name(each: Any) -> str | None:  # noqa: ANN401 — any JSON
    if not isinstance(each, dict):
        return None
    if isinstance(each.get("job"), dict):  # a result of a batch
        each = each["job"]
    return next((str(each[name]) for name in _NAMES if name in each), None)
