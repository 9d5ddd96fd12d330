"""Requests to the API's handler with any content, and the checks of every answer."""

from __future__ import annotations

import json
from typing import Any

from functions.api.handler import handler
from tests.fuzz.cases import counted
from tests.fuzz.checks import no_constant
from tests.integration.deployment import TENANT, Context, http_event, identity
from tests.integration.described import check_against_description

UNREADABLE = "Stored item is unreadable"


@counted("request")
def answer_to(event: dict[str, Any]) -> dict[str, Any]:
    """Send *event* to the handler. Returns the checked answer, as API Gateway accepts it.

    Raises:
        AssertionError: A server error, or an answer that a client cannot use.
    """
    answer: dict[str, Any] = json.loads(json.dumps(handler(event, Context())))
    http = event["requestContext"]["http"]
    check_against_description(http["method"], http["path"], answer)
    status, text = answer["statusCode"], answer["body"]
    document = json.loads(text, parse_constant=no_constant)
    headers = {name.lower(): value for name, value in answer["headers"].items()}
    text.encode()
    assert isinstance(document, dict)
    assert status < 500, document
    if status < 400:
        assert headers["content-type"] == "application/json"
        return answer
    assert headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    for fault in document.get("errors", []):
        assert fault.keys() == {"field", "value", "problem", "remedy"}
        assert all(isinstance(each, str) and each for each in fault.values()), fault
    if status == 422:
        assert document["errors"], "422 without errors"
    return answer


def event_of(
    method: str,
    path: str,
    *,
    body: str | None = None,
    encoded: bool = False,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    raw_query: str = "",
) -> dict[str, Any]:
    """A signed request, as the handler receives it."""
    event = http_event(
        method, path, body, query=query, authorizer=identity(TENANT), encoded=encoded
    )
    event["rawQueryString"] = raw_query
    event["headers"] = event["headers"] | (headers or {})
    return event


def check_request(case: dict[str, Any]) -> None:
    """Check a request of the corpus: the arguments of `event_of`."""
    answer_to(event_of(**case))
