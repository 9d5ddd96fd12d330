"""A cloned repository with a planted `.nextfire/` gets no key of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nextfire_cli.output import Output
from nextfire_cli.session import Session
from tests.security.planted.conftest import (
    OURS,
    PRODUCTION_KEY,
    STACK_KEY,
    Recorder,
    Seen,
    by_client,
    by_command,
    call,
    calls,
    plant,
)

ELSEWHERE = [
    "https://evil.example",
    "http://evil.example:4566/v1",
    "http://127.0.0.1@evil.example",
    "http://127.0.0.1:4566@evil.example/",
    "http://user@127.0.0.1:4566",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "http://localhost.:4566",
    "http://evil.example#@127.0.0.1",
    "http://evil.example\\@127.0.0.1",
    "http://127.0.0.1\\.evil.example",
    "http://127.0.0.1:4566\n.evil.example",
    "http://2130706433:4566",
    "http://3405803777:4566",
    "http://0x7f000001:4566",
    "http://127.1:4566",
    "http://127.0.0.2:4566",
    "http://0.0.0.0:4566",
    "http://[::]:4566",
    "http://[::ffff:203.0.113.9]:4566",
    "http://[::ffff:127.0.0.1]:4566",
    "http://[fe80::1]:4566",
    "http://\uff11\uff12\uff17.0.0.1:4566",
    "http://127.0.0.1:99999999",
    "ftp://127.0.0.1",
    "//127.0.0.1:4566",
    "127.0.0.1:4566",
    "",
]


@calls
@pytest.mark.parametrize("endpoint", ELSEWHERE)
def test_a_folder_selects_no_endpoint_but_the_loopback(
    clone: Path, calls: Callable[..., str], endpoint: str
) -> None:
    plant(clone, endpoint)
    seen: Seen = []

    refused = calls(seen)

    assert seen == []
    assert "stack.json" in refused
    assert "Traceback" not in refused


@calls
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_stack_on_the_loopback_is_used(clone: Path, calls: Callable[..., str], host: str) -> None:
    plant(clone, f"http://{host}:4566/_aws/execute-api/abc/$default")
    seen: Seen = []

    assert calls(seen) == ""
    assert {each.headers["Authorization"] for each in seen} == {f"Bearer {STACK_KEY}"}


@pytest.mark.parametrize("field", ["aws_endpoint", "dlq_url"])
@pytest.mark.parametrize("endpoint", ELSEWHERE)
def test_a_folder_selects_no_aws_but_the_loopback(clone: Path, field: str, endpoint: str) -> None:
    pool = {"executor": "worker", "queue_url": "http://127.0.0.1:9/q", "dlq_url": endpoint}
    changes = {"aws_endpoint": endpoint} if field == "aws_endpoint" else {"pools": {"a": pool}}
    plant(clone, "http://127.0.0.1:4566", **changes)

    for arguments in (
        ["worker"],
        ["keys", "create", "--first", "mine"],
        ["dlq", "list", "--pool", "a"],
    ):
        refused = call(*arguments)
        assert refused.exit_code == 1, refused.output
        assert "stack.json" in refused.output


@pytest.mark.parametrize("auth", [None, "keys", "jwt", "iam"])
@calls
def test_a_folders_endpoint_gets_the_stacks_own_key_only(
    clone: Path, recorder: Recorder, calls: Callable[..., str], auth: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plant(clone, recorder.url, aws_endpoint=recorder.url)
    if auth:
        monkeypatch.setenv("NEXTFIRE_AUTH", auth)

    said = calls()

    assert recorder.stole() == []
    if auth == "jwt":
        assert (recorder.came, "token" in said) == ([], True)
    elif auth == "iam":
        assert "Credential=test/" in recorder.came[0]
    else:
        assert f"Bearer {STACK_KEY}" in recorder.came[0]


@pytest.mark.parametrize(
    ("auth", "unset", "named"),
    [
        (None, None, ["NEXTFIRE_API_KEY", "NEXTFIRE_TOKEN"]),
        (None, "NEXTFIRE_TOKEN", ["NEXTFIRE_API_KEY"]),
        (None, "NEXTFIRE_API_KEY", ["NEXTFIRE_TOKEN"]),
        ("keys", None, ["NEXTFIRE_API_KEY"]),
        ("keys", "NEXTFIRE_API_KEY", []),
        ("iam", None, []),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_warns_once_of_variables_that_are_not_sent(
    clone: Path, recorder: Recorder, auth: str | None, unset: str | None, named: list[str],
    options: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plant(clone, recorder.url, aws_endpoint=recorder.url)
    if auth:
        monkeypatch.setenv("NEXTFIRE_AUTH", auth)
    if unset:
        monkeypatch.delenv(unset)

    result = call(*options, "status")

    assert result.exit_code == 0, result.output
    warned = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(warned) == bool(named)
    for name in ("NEXTFIRE_API_KEY", "NEXTFIRE_TOKEN"):
        assert (name in "".join(warned)) == (name in named)
    assert all("--endpoint URL" in line for line in warned)
    assert "Warning" not in result.stdout
    assert [text for text in OURS if text in result.output] == []
    assert recorder.stole() == []


def test_a_warning_is_printed_once_per_call(
    clone: Path, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(clone, recorder.url)
    caller = Session(None, output=Output.TABLE, profile=None, region=None)

    caller.client()
    caller.client()

    assert capsys.readouterr().err.count("Warning: ") == 1


def test_no_warning_where_the_variable_has_no_other_effect(
    clone: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, recorder.url)
    assert "Warning" not in call("--endpoint", recorder.url, "status").output

    monkeypatch.setenv("NEXTFIRE_API_KEY", STACK_KEY)
    monkeypatch.delenv("NEXTFIRE_TOKEN")

    assert "Warning" not in call("status").output


def test_a_key_that_is_given_goes_to_no_folders_endpoint(clone: Path, recorder: Recorder) -> None:
    plant(clone, recorder.url)

    assert "endpoint" in by_client(key=PRODUCTION_KEY)
    assert recorder.came == []


@calls
@pytest.mark.parametrize("access_key", ["", None])
def test_a_stack_without_credentials_is_not_sent_the_callers(
    clone: Path, recorder: Recorder, calls: Callable[..., str], access_key: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plant(
        clone, recorder.url, aws_endpoint=recorder.url, access_key=access_key, secret_key=access_key
    )
    monkeypatch.setenv("NEXTFIRE_AUTH", "iam")

    assert "stack.json" in calls()
    call("keys", "create", "--first", "mine")
    call("dlq", "list")

    assert recorder.came == []


def test_an_endpoint_that_is_named_gets_the_callers_key(
    clone: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, "https://evil.example", key_file="/etc/hostname")
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", recorder.url)

    assert by_client() == ""
    assert by_command() == ""
    assert {PRODUCTION_KEY in came for came in recorder.came} == {True}


def test_another_port_of_the_loopback_is_not_sent_the_stacks_key(
    clone: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, "http://127.0.0.1:9")
    monkeypatch.delenv("NEXTFIRE_API_KEY")

    call("--endpoint", recorder.url, "status")

    assert {STACK_KEY in came for came in recorder.came} == {False}
