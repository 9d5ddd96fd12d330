"""What becomes of a run by its callback's response, policy or destination."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.callback_server import CallbackServer, Reply, callback_server
from tests.e2e.callbacks.conftest import Callbacks, in_turn, put_secret
from tests.e2e.conftest import Stack
from tests.e2e.user import until


def test_a_server_that_hangs_times_out(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = lambda _: Reply(wait=8)

    job = callbacks.create(path, timeoutSec=2, retryPolicy={"maxAttempts": 1})
    run = callbacks.ended(job)

    assert (run["state"], run["attempts"][0]["outcome"]) == ("DEAD", "TIMED_OUT")


def test_a_huge_response_is_cut(callbacks: Callbacks, server: CallbackServer, path: str) -> None:
    server.responses[path] = lambda _: Reply(stream=200 * 1024 * 1024)

    run = callbacks.ended(callbacks.create(path))

    assert run["state"] == "SUCCEEDED"
    assert run["resultBytes"] < 200_000


def test_a_status_can_be_declared_a_success(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = in_turn(409)

    run = callbacks.ended(callbacks.create(path, http={"success": ["2xx", "409"]}))

    assert (run["state"], run["attempts"][0]["call"]["status"]) == ("SUCCEEDED", 409)


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("QUEUE", {"SUCCEEDED"}),
        ("SKIP", {"SUCCEEDED", "SKIPPED"}),
        ("REPLACE", {"CANCELLED"}),
    ],
)
def test_calls_that_overlap_follow_the_policy(
    callbacks: Callbacks, server: CallbackServer, path: str, overlap: str, states: set[str]
) -> None:
    took = timedelta(seconds=10 if overlap == "REPLACE" else 3)
    server.responses[path] = lambda _: Reply(wait=took.total_seconds())
    job = callbacks.create(path, type="INTERVAL", schedule="PT2S", overlap=overlap)

    def ended() -> list[dict[str, Any]]:
        runs = [each for each in callbacks.executions(job) if "finishedAt" in each]
        return runs if len(runs) >= 3 and {each["state"] for each in runs} >= states else []

    runs = until(ended, "three executions that ended")
    callbacks.delete(job)

    found = {each["state"] for each in runs}
    assert found - {"SKIPPED"} == states - {"SKIPPED"}  # a busy machine is late, and skips some
    calls = [one.at for one in server.received(path)]
    if overlap != "REPLACE":
        assert all(later - one >= took for one, later in itertools.pairwise(calls))


def test_a_call_is_cancelled_and_not_retried(
    callbacks: Callbacks, server: CallbackServer, path: str
) -> None:
    server.responses[path] = lambda _: Reply(wait=15)
    job = callbacks.create(path)
    [one] = until(lambda: server.received(path), "the call")

    callbacks.cancel(one.headers["Idempotency-Key"])
    run = callbacks.ended(job, within=12)

    assert (run["state"], run["attempt"]) == ("CANCELLED", 1)
    assert len(server.received(path)) == 1


def test_gone_pauses_the_job(callbacks: Callbacks, server: CallbackServer, path: str) -> None:
    server.responses[path] = in_turn(410)
    job = callbacks.create(path, type="INTERVAL", schedule="PT1H", retryPolicy={"maxAttempts": 1})
    started = callbacks._api.post(f"/v1/jobs/{job}/run")  # noqa: SLF001
    assert started.status_code in {200, 201, 202}, started.text

    run = callbacks.ended(job)

    assert run["state"] == "DEAD"
    stored = callbacks.job(job)
    assert stored["state"] == "PAUSED"
    assert "410" in stored["pauseReason"]


@pytest.mark.parametrize("status", [301, 302, 307])
def test_a_redirect_is_not_followed(
    callbacks: Callbacks, server: CallbackServer, path: str, status: int
) -> None:
    location = f"{server.url}{path}/elsewhere"
    server.responses[path] = in_turn(status, Location=location)

    run = callbacks.ended(callbacks.create(path, retryPolicy={"maxAttempts": 1}))

    assert run["state"] == "DEAD"
    assert server.received(f"{path}/elsewhere") == []


def test_a_forbidden_destination_gets_no_connection(stack: Stack) -> None:
    with stack.api() as api:
        target = {"pool": "calls", "http": {"url": "https://169.254.169.254/latest/meta-data"}}
        answer = api.post("/v1/jobs", json={"type": "DELAY", "schedule": "PT1S", "target": target})

    assert answer.status_code == 422
    assert "target.http.url" in answer.text


def test_a_callback_needs_a_pool_of_calls(stack: Stack) -> None:
    with stack.api() as api:
        target = {"http": {"url": "https://example.com"}}
        answer = api.post("/v1/jobs", json={"type": "DELAY", "schedule": "PT1S", "target": target})

    assert answer.status_code == 422
    assert "target.pool" in answer.text


def test_calls_at_the_same_time_are_limited(stack: Stack, key: str, tmp_path: Path) -> None:
    took = 0.5
    with callback_server(tmp_path) as server, stack.api_with(key) as api:
        put_secret(stack, "ca-limit", server.ca)
        server.responses["/limited"] = lambda _: Reply(wait=took)
        destination = server.url.removeprefix("https://")
        limit = f"/v1/endpoints/calls/{destination}/limit"
        api.post(limit, json={"parallel": 2}).raise_for_status()
        callbacks = Callbacks(api, server)
        tls = {"tls": {"ca": {"parameter": "ca-limit"}}}
        jobs = [callbacks.create("/limited", http=tls) for _ in range(12)]

        runs = [callbacks.ended(job, within=120) for job in jobs]
        calls = sorted(one.at for one in server.received("/limited"))

    assert [(run["state"], run["attempt"]) for run in runs] == [("SUCCEEDED", 1)] * 12
    assert len(calls) == 12
    # The third call from here on starts after this one has ended.
    assert all(
        later - one >= timedelta(seconds=took) for one, later in zip(calls, calls[2:], strict=False)
    )
