"""The option --debug: the HTTP exchange on stderr, without secrets."""

import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire import Client
from nextfire.domain.key_text import secret_of, write_key
from nextfire_cli.main import app

KEY, OTHER = (write_key("acme", each * 16, secret_of(bytes(32))) for each in "ab")
SECRETS = ("hunter2", "s3kr3t", "AKIDX", KEY, OTHER, KEY.rpartition(".")[2])
JOB: dict[str, Any] = {
    "jobId": "job_1",
    "state": "ACTIVE",
    "type": "MANUAL",
    "payload": {"password": "hunter2"},
    "target": {
        "http": {"url": "https://example.com/hook", "headers": {"X-Auth": "s3kr3t"}},
        "env": {"TOKEN": "s3kr3t"},
    },
}
CREATED = {
    "keyId": "abc",
    "name": "ci",
    "key": OTHER,
    "scopes": ["read"],
    "state": "ACTIVE",
    "createdAt": "2029-01-01T00:00:00Z",
    "expiresAt": "2030-01-01T00:00:00Z",
}


def api(request: httpx2.Request) -> httpx2.Response:
    answers: dict[str, Any] = {
        "GET /v1/jobs/job_1": JOB,
        "POST /v1/jobs/job_1/run": JOB | {"executionId": "job_1.1-x", "state": "PENDING"},
        "POST /v1/keys": CREATED,
        "POST /v1/scripts/uploads": {
            "uploadUrl": "https://s3.example.com/x?X-Amz-Credential=AKIDX&X-Amz-Signature=s3kr3t",
            "headers": {"x-amz-security-token": "s3kr3t"},
            "url": "s3://scripts/hello.py",
            "version": "v1",
            "handler": "hello",
            "pool": "default",
        },
    }
    if request.method == "PUT":
        return httpx2.Response(200, headers={"Set-Cookie": "session=s3kr3t"})
    return httpx2.Response(200, json=answers[f"{request.method} {request.url.path}"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*args: str) -> Result:
    environment = {"NEXTFIRE_ENDPOINT": "https://api.example.com", "NEXTFIRE_API_KEY": KEY}
    return CliRunner().invoke(app, args, env=environment, obj=httpx2.MockTransport(api))


@pytest.mark.usefixtures("folder")
def test_requests_and_responses_are_shown_on_stderr() -> None:
    result = call("jobs", "get", "job_1", "--debug", "--json")

    assert result.exit_code == 0, result.output
    assert "> GET https://api.example.com/v1/jobs/job_1\n" in result.stderr
    assert "> authorization: (hidden)\n" in result.stderr
    assert "< 200 OK (" in result.stderr
    assert '"payload": "(hidden)"' in result.stderr
    assert '"url": "https://example.com/hook"' in result.stderr
    assert "< " not in result.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["jobs", "get", "job_1"],
        ["jobs", "run", "job_1", "--payload", '{"password": "hunter2"}'],
        ["keys", "create", "ci", "--save"],
        ["scripts", "push", "hello.py"],
    ],
)
def test_secrets_are_hidden(folder: Path, args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    (folder / "hello.py").write_text("password = 'hunter2'")

    result = call("--debug", *args)

    assert result.exit_code == 0, result.output
    assert "> POST https://api.example.com/v1/" in result.stderr or args[1] == "get"
    assert [secret for secret in SECRETS if secret in result.stderr] == []


@pytest.mark.usefixtures("folder")
def test_without_the_option_nothing_is_shown() -> None:
    call("jobs", "get", "job_1", "--debug")

    assert "authorization" not in call("jobs", "get", "job_1").stderr
    assert logging.getLogger("nextfire.client").handlers == []


@pytest.mark.usefixtures("folder")
def test_text_of_the_api_does_not_control_the_terminal() -> None:
    def evil(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=JOB | {"name": "\x9b2J"})

    environment = {"NEXTFIRE_ENDPOINT": "https://api.example.com", "NEXTFIRE_API_KEY": KEY}
    result = CliRunner().invoke(
        app, ["--debug", "jobs", "get", "job_1"], env=environment, obj=httpx2.MockTransport(evil)
    )

    assert "\x9b" not in result.stderr


def test_an_answer_that_is_nested_deeply_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """As of another API: it must not end the call."""
    text = '{"a":' * 900 + "1" + "}" * 900
    answer = httpx2.Response(200, content=text, headers={"Content-Type": "application/json"})
    transport = httpx2.MockTransport(lambda _: answer)

    with caplog.at_level(logging.DEBUG, "nextfire.client"):
        Client("https://api.example.com", auth=httpx2.Auth(), transport=transport).get_health()

    assert f"({len(text)} bytes that are not shown)" in caplog.text
