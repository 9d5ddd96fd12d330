"""`nextfire endpoints`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from nextfire_cli.main import app

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
BROKEN = {"pool": "calls", "destination": "b:1", "state": "UNREADABLE", "reason": "does not decode"}


class Api:
    """An API that answers every request with `answer`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answer: Any = PAUSED

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.raw_path.decode(), body))
        return httpx.Response(200, json=self.answer)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def call(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)  # a folder without a local stack
    environment = {
        "NEXTFIRE_ENDPOINT": "https://abc123.execute-api.eu-west-1.amazonaws.com",
        "NEXTFIRE_API_KEY": f"nf.acme.3f9c0a77d1e2b456.{'A' * 43}",
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def run(*args: str) -> Result:
        return CliRunner().invoke(app, list(args), env=environment, obj=httpx.MockTransport(api))

    return run


def test_endpoints_are_listed(call: Callable[..., Result], api: Api) -> None:
    api.answer = {"items": [PAUSED, OPEN, BROKEN]}

    result = call("endpoints", "list", "--pool", "calls")

    assert result.exit_code == 0, result.output
    assert api.asked == [("GET", "/v1/endpoints?pool=calls&limit=100", None)]
    first, second, third = result.stdout.splitlines()[1:]
    assert first.split()[:5] == ["calls", "api.example.com:443", "PAUSED", "0", "2026-05-24"]
    assert "maintenance [bold]\\x1b[2J" in first
    assert second.split()[:4] == ["calls", "[2001:db8::1]:8443", "OPEN", "5"]
    assert "UNREADABLE" in third
    assert "does not decode" in third


def test_an_empty_list_says_what_it_means(call: Callable[..., Result], api: Api) -> None:
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
def test_an_endpoint_is_paused_and_resumed(
    call: Callable[..., Result], api: Api, host: str, segment: str
) -> None:
    paused = call("endpoints", "pause", host, "--pool", "calls", "--reason", "maintenance")
    resumed = call("endpoints", "resume", host)

    assert (paused.exit_code, resumed.exit_code) == (0, 0), paused.output + resumed.output
    assert api.asked == [
        ("POST", f"/v1/endpoints/calls/{segment}/pause", {"reason": "maintenance"}),
        ("POST", f"/v1/endpoints/default/{segment}/resume", {}),
    ]
    assert "PAUSED" in paused.stdout


def test_json_is_the_document_of_the_api(call: Callable[..., Result]) -> None:
    assert json.loads(call("--json", "endpoints", "pause", "a").stdout) == PAUSED


@pytest.mark.parametrize("host", ["https://api.example.com", "a/b", "a:0", "", "a b"])
@pytest.mark.parametrize("command", ["pause", "resume"])
def test_an_invalid_host_is_wrong_usage(
    call: Callable[..., Result], api: Api, command: str, host: str
) -> None:
    result = call("endpoints", command, host)

    assert result.exit_code == 2
    assert "HOST:PORT" in " ".join(result.output.split())
    assert not api.asked
