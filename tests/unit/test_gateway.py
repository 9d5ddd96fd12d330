"""The gateway of the embedded stack, with functions that record what they get."""

import io
import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from functions.embedded.gateway import Gateway
from functions.embedded.gateway_event import GatewayRequest, GatewayResponse

NOON = datetime(2026, 5, 24, 12, tzinfo=UTC)
KEY = ("Authorization", "Bearer good")


class Parts:
    """A gateway and what is behind it. The authorizer accepts `Bearer good`."""

    def __init__(self) -> None:
        self.now = NOON
        self.checked: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.uploads: list[tuple[str, bytes]] = []
        self.fails = False
        self.revoked = False
        self.gateway = Gateway(
            api=self.api,
            authorizer=self.authorizer,
            accept=self.accept,
            now=lambda: self.now,
        )

    def api(self, event: dict[str, Any], _context: object) -> dict[str, Any]:
        self.events.append(event)
        if self.fails:
            raise RuntimeError("secret detail")
        return {"statusCode": 200, "body": "{}"}

    def authorizer(self, event: dict[str, Any], _context: object) -> dict[str, Any]:
        [authorization] = event["identitySource"]
        self.checked.append(authorization)
        good = authorization == KEY[1] and not self.revoked
        return (
            {"isAuthorized": good, "context": {"tenant": "acme"}}
            if good
            else {"isAuthorized": False}
        )

    def accept(self, url: str, body: bytes) -> bool:
        self.uploads.append((url, body))
        return "mac=good" in url

    def send(self, method: str, target: str, *headers: tuple[str, str]) -> GatewayResponse:
        return self.gateway.answer(GatewayRequest(method, target, headers, b"body", "127.0.0.1"))


def test_a_known_caller_reaches_the_api_with_its_identity() -> None:
    parts = Parts()

    assert parts.send("GET", "/v1/jobs", KEY).status == 200

    [event] = parts.events
    assert event["requestContext"]["authorizer"] == {"lambda": {"tenant": "acme"}}


def test_an_identity_in_the_request_is_not_believed() -> None:
    parts = Parts()
    claimed = ("X-Authorizer", json.dumps({"lambda": {"tenant": "other"}}))

    assert parts.send("GET", "/v1/jobs", claimed).status == 401
    assert parts.send("GET", "/v1/jobs", ("Authorization", "Bearer bad"), claimed).status == 403
    assert parts.events == []


def test_only_the_health_check_needs_no_key() -> None:
    parts = Parts()

    assert parts.send("GET", "/v1/health").status == 200
    assert parts.send("POST", "/v1/health").status == 401
    assert parts.send("GET", "/v1/health/").status == 401
    assert parts.send("GET", "/v1/%68ealth").status == 401
    assert "authorizer" not in parts.events[0]["requestContext"]


def test_a_verdict_is_reused_for_thirty_seconds() -> None:
    parts = Parts()
    parts.send("GET", "/v1/jobs", KEY)
    parts.revoked = True

    parts.now = NOON + timedelta(seconds=29)
    assert parts.send("GET", "/v1/jobs", KEY).status == 200
    parts.now = NOON + timedelta(seconds=30)
    assert parts.send("GET", "/v1/jobs", KEY).status == 403
    assert len(parts.checked) == 2


def test_callers_without_a_key_take_no_memory() -> None:
    """A process of any user of the machine can send such headers."""
    parts = Parts()
    tracemalloc.start()
    try:
        for number in range(200):
            header = ("Authorization", f"Bearer {number} " + "x" * 200_000)
            assert parts.send("GET", "/v1/jobs", header).status == 403
            parts.checked.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 2_000_000


def test_a_thousand_verdicts_are_kept() -> None:
    parts = Parts()
    callers = [("Authorization", f"Bearer {number}") for number in range(1001)]
    for caller in (*callers[:1000], callers[0], callers[999]):
        parts.send("GET", "/v1/jobs", caller)
    assert len(parts.checked) == 1000

    for caller in (callers[1000], callers[0], callers[1000]):
        parts.send("GET", "/v1/jobs", caller)
    assert len(parts.checked) == 1002


def test_a_verdict_is_not_reused_after_the_clock_was_set_back() -> None:
    parts = Parts()
    parts.send("GET", "/v1/jobs", KEY)
    parts.revoked = True
    parts.now = NOON - timedelta(days=1)

    assert parts.send("GET", "/v1/jobs", KEY).status == 403


def test_a_function_that_fails_is_a_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    parts.fails = True

    response = parts.send("GET", "/v1/jobs", KEY)

    assert response.status == 500
    assert b"secret" not in response.body
    assert "secret detail" in caplog.text


def test_an_upload_needs_its_signed_url_and_nothing_else() -> None:
    parts = Parts()

    assert parts.send("PUT", "/uploads/a.py?mac=good").status == 200
    refused = parts.send("PUT", "/uploads/a.py?mac=bad")
    assert refused.status == 403
    assert b"Request a new one with POST /v1/scripts/uploads" in refused.body
    assert parts.send("GET", "/uploads/a.py?mac=good", KEY).status == 403
    assert parts.events == []
    assert [url for url, _ in parts.uploads] == ["/uploads/a.py?mac=good", "/uploads/a.py?mac=bad"]


def test_a_wsgi_request_keeps_its_escapes_and_headers() -> None:
    parts = Parts()
    started: list[tuple[str, list[tuple[str, str]]]] = []
    environ = {
        "REQUEST_METHOD": "POST",
        "REQUEST_URI": "/v1/jobs/a%252Fb?x=%26",
        "HTTP_AUTHORIZATION": KEY[1],
        "HTTP_IDEMPOTENCY_KEY": "k",
        "CONTENT_TYPE": "application/json",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.input": io.BytesIO(b"{}"),
    }

    body = parts.gateway(environ, lambda status, headers: started.append((status, headers)))

    [event], [(status, headers)] = parts.events, started
    assert (event["rawPath"], event["rawQueryString"]) == ("/v1/jobs/a%252Fb", "x=%26")
    names = ["authorization", "content-type", "idempotency-key"]
    assert sorted(event["headers"]) == names
    assert event["headers"]["idempotency-key"] == "k"
    assert (status, list(body)) == ("200 OK", [b"{}"])
    assert ("content-length", "2") in headers
