"""Callbacks arrive signed and with their headers, are retried, and replayed with the same bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.e2e.callback_server import CallbackServer, Reply, json_of
from tests.e2e.callbacks.conftest import SECRET, SOON, TOKEN, Callbacks, in_turn


def test_a_callback_arrives_with_its_headers_body_and_signature(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    http = {
        "body": {"customer": "{{payload.customer}}", "due": "{{run.scheduledAt}}"},
        "headers": {"X-Source": "tests"},
        "sign": [{"parameter": "signing"}],
        "auth": {"type": "bearer", "token": {"parameter": "token"}},
    }
    job = callbacks.create(path, http=http, payload={"customer": {"id": 7}})

    run = callbacks.ended(job)

    [one] = server.received(path)
    headers = {name.lower(): value for name, value in one.headers.items()}
    assert run["state"] == "SUCCEEDED", run
    assert json_of(one) == {"customer": {"id": 7}, "due": run["scheduledAt"]}
    assert one.at - datetime.fromisoformat(run["scheduledAt"]) < timedelta(seconds=30)
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["x-source"] == "tests"
    assert headers["idempotency-key"] == run["executionId"] == headers["webhook-id"]
    assert headers["nextfire-attempt"] == "1"
    assert headers["nextfire-scheduled-at"] == run["scheduledAt"]
    assert headers["traceparent"].startswith("00-")
    Webhook(SECRET).verify(one.body, one.headers)
    [attempt] = run["attempts"]
    assert attempt["call"]["status"] == 200
    assert attempt["call"]["address"].startswith("127.0.0.1")
    assert run["result"]["body"] == {"received": True}
    assert TOKEN not in json.dumps(run)


def test_a_replay_sends_the_same_bytes(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    run = callbacks.ended(callbacks.create(path, http={"sign": [{"parameter": "signing"}]}))

    again = callbacks.replayed(run["executionId"])

    assert (again["state"], again["replayOf"]) == ("SUCCEEDED", run["executionId"])
    first, second = server.received(path)
    changing = {"traceparent", "webhook-timestamp", "webhook-signature"}
    assert second.body == first.body
    assert {name: first.headers[name] for name in first.headers if name not in changing} == {
        name: second.headers[name] for name in second.headers if name not in changing
    }
    Webhook(SECRET).verify(second.body, second.headers)


def test_a_callback_is_retried_until_it_succeeds(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = in_turn(500, 500, 200)

    run = callbacks.ended(callbacks.create(path, retryPolicy=SOON))

    assert (run["state"], run["attempt"]) == ("SUCCEEDED", 3)
    calls = [one.headers for one in server.received(path)]
    assert [each["Nextfire-Attempt"] for each in calls] == ["1", "2", "3"]
    assert len({each["Idempotency-Key"] for each in calls}) == 1


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured_and_the_attempt_does_not_count(
    callbacks: Callbacks, server: CallbackServer, path: str, *, as_date: bool
) -> None:
    def respond(one: Any) -> Reply:
        if one.number > 1:
            return Reply()
        later = datetime.now(UTC) + timedelta(seconds=5)
        after = format_datetime(later, usegmt=True) if as_date else "5"
        return Reply(429, headers={"Retry-After": after})

    server.responses[path] = respond
    run = callbacks.ended(callbacks.create(path, retryPolicy=SOON | {"maxAttempts": 1}))

    first, second = server.received(path)
    assert (run["state"], run["attempt"]) == ("SUCCEEDED", 1)
    assert [each["outcome"] for each in run["attempts"]] == ["DEFERRED", "SUCCEEDED"]
    assert second.at - first.at >= timedelta(seconds=4)
