"""Where the client takes its endpoint and its credentials from."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

import nextfire
import nextfire.client
import nextfire.testing
from nextfire import Client, ClientError, UnreachableError
from nextfire.client.errors import BY_GATEWAY
from nextfire.client.folder import write_private
from tests.builders import key_text
from tests.unit.client_calls import LOCAL, REMOTE, Api

# The endpoint and the credentials


KEY = key_text()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a local stack, for a user without NEXTFIRE variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ENDPOINT", "API_KEY", "TOKEN", "AUTH"):
        monkeypatch.delenv(f"NEXTFIRE_{name}", raising=False)
    return tmp_path


def url_and_authorization(**given: Any) -> tuple[str, str]:
    """The URL of a request and its Authorization header."""
    api = Api({"status": "ok"})
    with Client(**given, transport=httpx2.MockTransport(api)) as caller:
        caller.get_health()
    return str(api.came[0].url), api.came[0].headers["Authorization"]


def up(folder: Path) -> None:
    """Write to *folder* the parts of what `nextfire up` writes that the client reads."""
    state = folder / ".nextfire"
    state.mkdir(mode=0o755)
    described = {
        "endpoint": LOCAL,
        "aws_endpoint": "http://127.0.0.1:4566",
        "key_file": str(state / "api-key"),
        "region": "us-east-1",
        "access_key": "test",
        "secret_key": "test",
    }
    write_private(state / "api-key", f"{KEY}\n")
    write_private(state / "stack.json", json.dumps(described))


def test_the_environment_says_where_and_who(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", f"{REMOTE}/")
    monkeypatch.setenv("NEXTFIRE_API_KEY", KEY)

    assert bare.is_dir()
    assert url_and_authorization() == (f"{REMOTE}/v1/health", f"Bearer {KEY}")


def test_the_local_stack_of_the_folder_is_found(bare: Path) -> None:
    up(bare)

    assert url_and_authorization() == (f"{LOCAL}/v1/health", f"Bearer {KEY}")


def test_another_endpoint_is_not_sent_the_key_of_the_local_stack(bare: Path) -> None:
    up(bare)

    with pytest.raises(ClientError, match="No API key"):
        Client(REMOTE, auth="keys")


def test_what_is_given_goes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bare.is_dir()
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", "https://elsewhere")
    monkeypatch.setenv("NEXTFIRE_AUTH", "iam")

    assert url_and_authorization(endpoint=REMOTE, key=KEY) == (
        f"{REMOTE}/v1/health",
        f"Bearer {KEY}",
    )


def test_iam_signs_in_the_region_of_the_endpoint(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(bare / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_PROFILE", raising=False)

    _, authorization = url_and_authorization(endpoint=REMOTE, auth="iam")

    assert "Credential=AKIDEXAMPLE/" in authorization
    assert "/eu-west-1/execute-api/aws4_request" in authorization


@pytest.mark.parametrize(("auth", "named"), [(None, True), ("iam", False)])
def test_without_credentials_a_key_is_named_unless_a_signature_was_asked_for(
    bare: Path, monkeypatch: pytest.MonkeyPatch, auth: str | None, *, named: bool
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(bare / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(bare / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ClientError, match=r"[Nn]o AWS credentials") as refused:
        Client(REMOTE, auth=auth)

    assert ("NEXTFIRE_API_KEY" in refused.value.remedy) is named
    assert "aws sso login" in refused.value.remedy


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "No endpoint"),
        ({"endpoint": "api.example.com"}, "is not a URL"),
        ({"endpoint": "https://"}, "'https://' is not a URL"),
        ({"endpoint": "https:///v1"}, "is not a URL"),
        ({"endpoint": "https://[::1"}, "is not a URL: Invalid port"),
        ({"endpoint": "https://a\tb.example.com"}, "is not a URL: Invalid non-printable"),
        ({"timeout": float("inf")}, "is not a time to wait"),
        ({"endpoint": REMOTE, "key": "nonsense"}, "not hold a valid API key"),
        ({"endpoint": REMOTE, "auth": "basic"}, "Available: keys, iam, jwt"),
        ({"endpoint": REMOTE, "auth": "jwt"}, "No token found"),
        ({"endpoint": "http://example.com", "key": KEY}, "not encrypted"),
    ],
)
def test_an_invalid_configuration_says_how_to_fix_it(
    bare: Path, given: dict[str, Any], expected: str
) -> None:
    assert bare.is_dir()
    with pytest.raises(ClientError, match=expected) as refused:
        Client(**given)
    assert "nonsense" not in str(refused.value)


def test_remedies_name_arguments_and_variables_instead_of_flags(bare: Path) -> None:
    assert bare.is_dir()
    with pytest.raises(ClientError) as nothing:
        Client()
    assert "endpoint=URL or NEXTFIRE_ENDPOINT" in nothing.value.remedy

    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    with (
        Client(REMOTE, KEY, transport=httpx2.MockTransport(refuse)) as client,
        pytest.raises(UnreachableError) as unreachable,
    ):
        client.get_health()
    assert "endpoint=URL or NEXTFIRE_ENDPOINT" in unreachable.value.remedy
    remedies = [nothing.value.remedy, unreachable.value.remedy]
    remedies += [each.remedy for each in BY_GATEWAY.values()]
    assert not [each for each in remedies if re.search(r"--(endpoint|auth)", each)]


@pytest.mark.parametrize("written", [f"{REMOTE}/", f"{REMOTE}/v1", f" {REMOTE}/v1/\r\n"])
def test_an_endpoint_may_be_written_with_what_follows_it(bare: Path, written: str) -> None:
    assert bare.is_dir()
    assert Client(written, KEY).endpoint == REMOTE


def test_nextfire_itself_imports_no_httpx() -> None:
    code = "import nextfire, sys; sys.exit('httpx2' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert nextfire.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        _ = nextfire.Clinet  # type: ignore[attr-defined]


@pytest.mark.parametrize("timeout", [0, -1.5, float("nan")])
def test_a_timeout_is_above_zero(timeout: float) -> None:
    with pytest.raises(ClientError, match=r"^timeout: .* Give seconds above 0, such as 30\."):
        Client(REMOTE, timeout=timeout)


@pytest.mark.parametrize("module", [nextfire, nextfire.client, nextfire.testing])
def test_names_that_are_imported_on_first_use_are_listed(module: ModuleType) -> None:
    assert {*module.__all__} <= {*dir(module)}
    assert "__name__" in dir(module)


def test_a_user_without_a_home_has_no_files(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as any user id."""
    del bare
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)

    with pytest.raises(ClientError, match=r"home folder is not known.* Set HOME"):
        Client(REMOTE, auth="keys")
    with pytest.raises(ClientError, match="No endpoint"):
        Client()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "example")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    assert "execute-api" in url_and_authorization(endpoint=REMOTE, region="eu-west-1")[1]
    assert url_and_authorization(endpoint=REMOTE, key=KEY)[1] == f"Bearer {KEY}"
