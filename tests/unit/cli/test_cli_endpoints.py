"""`nextfire endpoints`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire_cli import (
    endpoint_test,
    endpoints,  # noqa: F401 — loaded lazily, it would import what a test has replaced
)
from nextfire_cli.main import app
from tests.unit.cli.conftest import Call

PAUSED = {
    "pool": "calls",
    "destination": "api.example.com:443",
    "state": "PAUSED",
    "failures": 0,
    "pauseReason": "maintenance [bold]\x1b[2J",
    "pausedAt": "2026-05-24T12:00:00Z",
    "changedAt": "2026-05-24T12:00:00Z",
}
OPEN = {
    "pool": "calls",
    "destination": "[2001:db8::1]:8443",
    "state": "OPEN",
    "failures": 5,
    "openedAt": "2026-05-24T12:00:00Z",
    "probeAt": "2026-05-24T12:00:30Z",
    "failedProbes": 0,
    "changedAt": "2026-05-24T12:00:00Z",
}
CLOSED = {"pool": "default", "destination": "api.example.com:443", "state": "CLOSED", "failures": 0}
BROKEN = {"pool": "calls", "destination": "b:1", "state": "UNREADABLE", "reason": "does not decode"}


class Api:
    """An API that answers every request with `answer`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answer: Any = PAUSED

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.raw_path.decode(), body))
        return httpx2.Response(200, json=self.answer)


@pytest.fixture
def api() -> Api:
    return Api()


def test_endpoints_are_listed(call: Call, api: Api) -> None:
    api.answer = {"items": [PAUSED, OPEN, BROKEN]}

    result = call("endpoints", "list", "--pool", "calls")

    assert result.exit_code == 0, result.output
    assert api.asked == [("GET", "/v1/endpoints?pool=calls&limit=100", None)]
    first, second, third = result.stdout.splitlines()[1:]
    assert first.split()[:5] == ["calls", "api.example.com:443", "PAUSED", "0", "2026-05-24"]
    assert "maintenance [bold]\\x1b[2J" in first
    assert second.split()[:4] == ["calls", "[2001:db8::1]:8443", "OPEN", "5"]
    assert second.endswith("next probe from 2026-05-24 12:00:30 on")
    assert "UNREADABLE" in third
    assert "does not decode" in third


def test_an_empty_list_says_what_it_means(call: Call, api: Api) -> None:
    api.answer = {"items": []}

    assert "no call has failed" in " ".join(call("endpoints", "list").stdout.split())


@pytest.mark.parametrize(
    ("host", "segment"),
    [
        ("api.example.com", "api.example.com%3A443"),
        ("API.example.com:8443", "api.example.com%3A8443"),
        ("[2001:db8::1]", "%5B2001%3Adb8%3A%3A1%5D%3A443"),
    ],
)
def test_an_endpoint_is_paused_and_resumed(call: Call, api: Api, host: str, segment: str) -> None:
    paused = call("endpoints", "pause", host, "--pool", "calls", "--reason", "maintenance")
    resumed = call("endpoints", "resume", host)

    assert (paused.exit_code, resumed.exit_code) == (0, 0), paused.output + resumed.output
    assert api.asked == [
        ("POST", f"/v1/endpoints/calls/{segment}/pause", {"reason": "maintenance"}),
        ("POST", f"/v1/endpoints/default/{segment}/resume", {}),
    ]
    assert "PAUSED" in paused.stdout


@pytest.mark.parametrize(
    ("flags", "body"),
    [
        (["--per-minute", "60"], {"perMinute": 60}),
        (["--parallel", "5"], {"parallel": 5}),
        (["--per-minute", "60", "--parallel", "5"], {"perMinute": 60, "parallel": 5}),
        (["--none"], {}),
    ],
)
def test_an_endpoint_is_limited(
    call: Call, api: Api, flags: list[str], body: dict[str, int]
) -> None:
    api.answer = CLOSED | body

    result = call("endpoints", "limit", "api.example.com", *flags)

    assert result.exit_code == 0, result.output
    assert api.asked == [("POST", "/v1/endpoints/default/api.example.com%3A443/limit", body)]
    assert ("Calls per minute" in result.output) == ("perMinute" in body)


@pytest.mark.parametrize(
    "flags", [[], ["--none", "--parallel", "1"], ["--parallel", "0"], ["--per-minute", "6001"]]
)
def test_a_limit_has_at_least_one_part_and_bounds(call: Call, api: Api, flags: list[str]) -> None:
    result = call("endpoints", "limit", "api.example.com", *flags)

    assert result.exit_code == 2
    assert not api.asked


def test_json_is_the_document_of_the_api(call: Call) -> None:
    assert json.loads(call("--json", "endpoints", "pause", "a").stdout) == PAUSED


@pytest.mark.parametrize("host", ["https://api.example.com", "a/b", "a:0", "", "a b"])
@pytest.mark.parametrize("command", ["pause", "resume"])
def test_an_invalid_host_is_wrong_usage(call: Call, api: Api, command: str, host: str) -> None:
    result = call("endpoints", command, host)

    assert result.exit_code == 2
    assert "HOST:PORT" in " ".join(result.output.split())
    assert not api.asked


class TestApi:
    """An API whose jobs make calls: the run is PENDING at first, and then has *attempt*."""

    __test__ = False

    def __init__(self, attempt: dict[str, Any] | None, state: str) -> None:
        self.attempt, self.state = attempt, state
        self.asked: list[str] = []
        self.job: dict[str, Any] = {}

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(f"{request.method} {path}")
        if request.method == "POST" and path == "/v1/jobs":
            self.job = json.loads(request.content)
        run: dict[str, Any] = {
            "executionId": "e1",
            "jobId": "j",
            "state": "PENDING",
            "attempts": [],
        }
        if self.asked.count("GET /v1/executions/e1") > 1 and self.attempt is not None:
            run |= {"state": self.state, "attempts": [self.attempt]}
        return httpx2.Response(
            200, json=self.job if path.startswith("/v1/jobs") and not path.endswith("/run") else run
        )


ATTEMPT = {
    "number": 1,
    "outcome": "SUCCEEDED",
    "reason": "200 OK",
    "call": {
        "method": "POST",
        "url": "https://api.example.com/hooks",
        "request": {"headers": {"Authorization": "Bearer ***"}, "body": '{"id":7}'},
        "status": 200,
        "headers": {"content-type": "text/plain"},
        "body": "thanks \x1b[2J",
        "address": "93.184.216.34:443",
        "timingsMs": {"total": 12.5},
    },
}


@pytest.fixture
def call_once(
    command_environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    monkeypatch.setattr(endpoint_test, "_POLL", 0)

    def run(api: TestApi, *args: str) -> Result:
        line = ["endpoints", "test", *args]
        return CliRunner().invoke(app, line, env=command_environment, obj=httpx2.MockTransport(api))

    return run


def test_a_url_is_called_once(call_once: Callable[..., Result]) -> None:
    api = TestApi(ATTEMPT, "SUCCEEDED")

    result = call_once(
        api, "https://api.example.com/hooks", "--pool", "calls", "--payload", '{"id": 7}',
        "--timeout", "5s", "--label", "team=etl",
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert api.job["target"] == {
        "pool": "calls",
        "http": {"url": "https://api.example.com/hooks", "recordRequest": True},
    }
    assert (api.job["type"], api.job["payload"], api.job["timeoutSec"]) == ("MANUAL", {"id": 7}, 5)
    assert api.job["retryPolicy"] == {"maxAttempts": 1}
    assert api.job["labels"] == {"team": "etl"}
    for text in (
        "POST https://api.example.com/hooks", "Authorization: Bearer ***", '{"id":7}',
        "200 from 93.184.216.34:443", "thanks", "total 12.5",
    ):  # fmt: skip
        assert text in result.stdout
    assert "\x1b" not in result.stdout
    assert api.asked[-1] == f"DELETE /v1/jobs/{api.job['jobId']}"


def test_a_call_that_is_deferred_ends_the_test(call_once: Callable[..., Result]) -> None:
    api = TestApi({"number": 1, "outcome": "DEFERRED", "reason": "503"}, "PENDING")

    result = call_once(api, "https://api.example.com/hooks", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["attempts"][0]["outcome"] == "DEFERRED"
    assert api.asked[-2:] == [
        "POST /v1/executions/e1/cancel", f"DELETE /v1/jobs/{api.job['jobId']}",
    ]  # fmt: skip


def test_a_call_that_is_never_made_ends_the_test(
    call_once: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_test, "_STARTS_WITHIN", -1)
    monkeypatch.setattr(endpoint_test, "_SILENT", -1)
    api = TestApi(None, "PENDING")

    result = call_once(api, "https://api.example.com/hooks", "--pool", "calls", "--timeout", "1s")

    assert result.exit_code == 1
    assert result.stderr.count("nextfire endpoints list --pool calls") == 2
    assert "Waiting up to 0 s for the call." in result.stderr
    assert api.asked[-1] == f"DELETE /v1/jobs/{api.job['jobId']}"


def test_sigterm_ends_the_test_and_deletes_the_job(
    call_once: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = TestApi(None, "PENDING")
    polls = []

    def kill(run: object) -> None:
        polls.append(run)
        assert len(polls) == 1, "the signal was ignored"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(endpoint_test, "attempt_of", kill)
    before = signal.signal(signal.SIGTERM, lambda *_: None)

    result = call_once(api, "https://api.example.com/hooks")
    signal.signal(signal.SIGTERM, before)

    assert (result.exit_code, len(polls)) == (128 + signal.SIGTERM, 1)
    assert api.asked[-1] == f"DELETE /v1/jobs/{api.job['jobId']}"


def test_the_call_of_a_job_document_is_tested(
    call_once: Callable[..., Result], tmp_path: Path
) -> None:
    http = {"url": "https://api.example.com/hooks", "method": "PUT"}
    job = {"type": "CRON", "schedule": "* * * * *", "jobId": "nightly", "overlap": "SKIP",
           "payload": [1], "target": {"pool": "calls", "http": http}}  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    api = TestApi(ATTEMPT, "SUCCEEDED")

    result = call_once(api, "-f", "job.json", "--keep")

    assert result.exit_code == 0, result.output
    assert api.job["target"] == {"pool": "calls", "http": {**http, "recordRequest": True}}
    assert api.job["jobId"].startswith("endpoint-test-")
    assert "overlap" not in api.job
    assert not [each for each in api.asked if each.startswith("DELETE")]


def test_a_test_needs_a_url(call_once: Callable[..., Result]) -> None:
    api = TestApi(ATTEMPT, "SUCCEEDED")

    result = call_once(api, "--pool", "calls")

    assert result.exit_code == 2
    assert "give the URL" in result.stderr
    assert api.asked == []


def test_an_invalid_url_is_named_as_the_argument(call_once: Callable[..., Result]) -> None:
    fault = {"field": "target.http.url", "value": "10.0.0.1", "problem": "not an https URL"}
    problem = {"title": "Unprocessable Entity", "status": 422, "errors": [fault]}

    def api(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(422, json=problem)

    result = call_once(api, "10.0.0.1")

    assert result.exit_code != 0
    assert "URL: not an https URL" in result.stderr
