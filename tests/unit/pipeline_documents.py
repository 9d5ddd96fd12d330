"""Pipelines as documents, and their plans."""

from __future__ import annotations

from typing import Any

from nextfire.client.pipelines.document import Pipeline, read

MANUAL: dict[str, Any] = {"type": "MANUAL", "target": {"handler": "hello"}}


def job(*parents: str, **fields: Any) -> dict[str, Any]:
    if parents:
        fields = {"type": "AFTER", "after": [{"job": each} for each in parents]} | fields
    return MANUAL | fields


def pipeline(name: str | None = "etl", **jobs: dict[str, Any]) -> Pipeline:
    [found] = read({"pipeline": name, "jobs": [{"jobId": each, **jobs[each]} for each in jobs]})
    return found
