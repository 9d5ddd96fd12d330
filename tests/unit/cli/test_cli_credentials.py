"""Which credentials the command uses to identify the caller, and which it does not send."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli import keys
from tests.unit.cli.conftest import Api, Call
from tests.unit.cli.keys import KEY, OTHER, keep

ROUTES = keys.ROUTES


def test_without_a_key_requests_are_signed(call: Call, api: Api) -> None:
    assert call("jobs", "list").exit_code == 0

    assert api.authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")


def test_a_key_of_the_environment_is_sent_and_no_aws_is_needed(call: Call, api: Api) -> None:
    result = call("jobs", "list", NEXTFIRE_API_KEY=KEY, AWS_ACCESS_KEY_ID=None)

    assert result.exit_code == 0, result.output
    assert api.authorization == f"Bearer {KEY}"
    assert KEY not in result.output


def test_a_key_is_kept_for_its_api_alone(call: Call, api: Api, config: Path) -> None:
    keep(config)

    assert call("jobs", "list").exit_code == 0
    assert api.authorization == f"Bearer {KEY}"
    elsewhere = "https://def456.execute-api.eu-west-1.amazonaws.com"
    assert call("jobs", "list", "--endpoint", elsewhere).exit_code == 0
    assert api.authorization.startswith("AWS4-")


def test_the_environment_goes_before_the_file_and_auth_before_both(
    call: Call, api: Api, config: Path
) -> None:
    keep(config)

    call("jobs", "list", NEXTFIRE_API_KEY=OTHER, NEXTFIRE_TOKEN="t.o.k")
    assert api.authorization == f"Bearer {OTHER}"
    call("jobs", "list", "--auth", "iam", NEXTFIRE_API_KEY=OTHER)
    assert api.authorization.startswith("AWS4-")
    call("jobs", "list", "--auth", "jwt", NEXTFIRE_API_KEY=OTHER, NEXTFIRE_TOKEN="t.o.k")
    assert api.authorization == "Bearer t.o.k"
    call("jobs", "list", NEXTFIRE_AUTH="iam")
    assert api.authorization.startswith("AWS4-")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_use_is_not_sent(
    call: Call, api: Api, config: Path, mode: int
) -> None:
    file = keep(config, mode=mode)

    result = call("jobs", "list")

    assert result.exit_code == 1
    assert f"chmod 600 {file}" in result.stderr
    assert not api.requests


@pytest.mark.parametrize(
    ("auth", "what"), [("keys", "NEXTFIRE_API_KEY"), ("jwt", "NEXTFIRE_TOKEN")]
)
def test_missing_credentials_that_were_requested_are_reported(
    call: Call, api: Api, auth: str, what: str
) -> None:
    result = call("jobs", "list", "--auth", auth)

    assert result.exit_code == 1
    assert what in result.stderr
    assert not api.requests


def test_without_key_and_credentials_both_ways_are_named(call: Call) -> None:
    result = call("jobs", "list", AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)

    assert result.exit_code == 1
    assert "NEXTFIRE_API_KEY" in result.stderr
    assert "aws sso login" in result.stderr


SSO = """sso_start_url = https://example.com
sso_region = eu-west-1
sso_account_id = 1
sso_role_name = reader"""


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (SSO, "SSO Token"),
        ("credential_process = /none/login", "/none/login"),
        ("credential_process = echo hello", "Expecting value"),
    ],
)
@pytest.mark.parametrize("command", [("jobs", "list"), ("dlq", "list")])
def test_aws_credentials_that_cannot_be_had_are_reported(
    call: Call, api: Api, tmp_path: Path, command: tuple[str, str], settings: str, problem: str
) -> None:
    """Such as those of a login that has expired: they are loaded when a request is signed."""
    (tmp_path / "aws").write_text(f"[default]\n{settings}\n")
    own: dict[str, str | None] = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    own |= {"AWS_CONFIG_FILE": str(tmp_path / "aws"), "AWS_REGION": "eu-west-1"}

    result = call(*command, HOME=str(tmp_path), **own)

    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit), result.exception
    assert problem in result.stderr
    assert "aws sso login" in result.stderr
    assert not api.requests


def test_an_invalid_key_is_not_shown(call: Call, api: Api, config: Path) -> None:
    file = keep(config, "nf.acme.hunter2")

    for result in (call("jobs", "list", NEXTFIRE_API_KEY="hunter2"), call("jobs", "list")):
        assert result.exit_code == 1
        assert "does not hold a valid API key" in result.stderr
        assert "hunter2" not in result.output
    assert str(file) in result.stderr
    assert not api.requests


def test_a_key_is_not_sent_in_the_clear(call: Call, api: Api) -> None:
    result = call("jobs", "list", "--endpoint", "http://example.com", NEXTFIRE_API_KEY=KEY)

    assert result.exit_code == 1
    assert "not encrypted" in result.stderr
    assert not api.requests
