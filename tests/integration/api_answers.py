"""Answers of the API: problem documents and pages; and the JSON values that a body may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.integration.deployment import TENANT, Answer, Deployment

CRON = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "hello"}}


def assert_problem(answer: Answer, status: int, *, field: str | None = None) -> None:
    """Assert that *answer* is a problem document of *status*, about *field* if that is given."""
    document = answer.document
    assert answer.status == status, document
    assert answer.media_type == "application/problem+json"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document.keys() <= {"type", "title", "status", "detail", "quota", "errors"}
    for fault in document.get("errors", []):
        assert fault.keys() == {"field", "value", "problem", "remedy"}
        assert all(isinstance(text, str) and text for text in fault.values())
    if field is not None:
        assert field in {fault["field"] for fault in document["errors"]}, document


def pages(system: Deployment, path: str, limit: int, tenant: str = TENANT) -> Iterator[list[Any]]:
    query = {"limit": str(limit)}
    while True:
        answer = system.call("GET", path, query=query, tenant=tenant)
        assert answer.status == 200, answer.document
        yield answer.document["items"]
        if "cursor" not in answer.document:
            return
        query["cursor"] = answer.document["cursor"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
