"""`nextfire keys`, and which credentials the command uses to identify the caller."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3  # noqa: TID251 - makes the table that the command finds
import httpx2
import pytest
from moto import mock_aws
from typer.testing import CliRunner, Result

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.key_text import parse
from nextfire.domain.keys import Scope
from nextfire.usecases.manage_keys import CheckKey
from nextfire_cli.aws import Account
from nextfire_cli.main import app

HOST = "abc123.execute-api.eu-west-1.amazonaws.com"
ENDPOINT = f"https://{HOST}"
KEY = f"nf.acme.3f9c0a77d1e2b456.{'A' * 43}"
OTHER = f"nf.other.3f9c0a77d1e2b456.{'B' * 43}"
SHOWN = {
    "keyId": "3f9c0a77d1e2b456",
    "name": "ci",
    "scopes": ["write"],
    "state": "ACTIVE",
    "createdAt": "2026-05-24T12:00:00Z",
    "expiresAt": "2026-08-22T12:00:00Z",
}
MADE = SHOWN | {"key": KEY}
Call = Callable[..., Result]


class Api:
    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        self.routes: dict[str, Any] = {
            "GET /v1/jobs": {"items": []},
            "POST /v1/keys": MADE,
            "GET /v1/keys": {"items": [SHOWN | {"lastUsedOn": "2026-05-24"}]},
            "DELETE /v1/keys/3f9c0a77d1e2b456": SHOWN | {"state": "REVOKED"},
            "POST /v1/keys/3f9c0a77d1e2b456/rotate": {
                "new": MADE,
                "old": SHOWN | {"expiresAt": "2026-05-25T12:00:00Z"},
            },
        }

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(200, json=self.routes[f"{request.method} {request.url.path}"])

    @property
    def authorization(self) -> str:
        return self.requests[-1].headers["Authorization"]

    @property
    def body(self) -> Any:
        return json.loads(self.requests[-1].content)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.fixture
def call(api: Api, tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)  # a folder without a local stack
    environment: dict[str, str | None] = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PROFILE": None,
        "AWS_REGION": None,
        "AWS_DEFAULT_REGION": None,
        "NEXTFIRE_ENDPOINT": ENDPOINT,
        "NEXTFIRE_API_KEY": None,
        "NEXTFIRE_TOKEN": None,
        "NEXTFIRE_AUTH": None,
        "XDG_CONFIG_HOME": str(config),
    }

    def run(*args: str, **changes: str | None) -> Result:
        return CliRunner().invoke(
            app, list(args), env=environment | changes, obj=httpx2.MockTransport(api)
        )

    return run


def keep(config: Path, key: str = KEY, *, mode: int = 0o600, host: str = HOST) -> Path:
    file = config / "nextfire" / "keys" / host
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(key + "\n")
    file.chmod(mode)
    return file


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


def test_create_shows_the_key_alone_on_standard_output(call: Call, api: Api) -> None:
    result = call("keys", "create", "ci", "--scope", "read", "--expires", "30d")

    assert result.exit_code == 0, result.output
    assert api.body == {"name": "ci", "scopes": ["read"], "expiresInSec": 30 * 86_400}
    assert result.stdout == KEY + "\n"
    assert KEY not in result.stderr
    assert "only time" in result.stderr


@pytest.mark.parametrize("save", [False, True])
def test_create_on_a_local_stack_names_its_endpoint(call: Call, *, save: bool) -> None:
    """In the folder of a local stack, neither the variable alone nor the file has an effect."""
    local = "http://127.0.0.1:4566"

    result = call(
        "keys", "create", "ci", *(["--save"] if save else []), "--endpoint", local,
        NEXTFIRE_API_KEY=OTHER, AWS_REGION=REGION,
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    assert f"--endpoint '{local}'" in result.stderr
    assert "own key" in result.stderr
    if not save:
        assert "NEXTFIRE_API_KEY=KEY" in result.stderr
        assert "NEXTFIRE_ENDPOINT" in result.stderr
        assert "mode 600" not in result.stderr


def test_create_asks_for_a_key_that_writes_for_ninety_days(call: Call, api: Api) -> None:
    call("keys", "create", "ci")

    assert api.body == {"name": "ci", "scopes": ["write"], "expiresInSec": 90 * 86_400}


def test_create_in_json_is_one_document(call: Call) -> None:
    assert json.loads(call("--json", "keys", "create", "ci").stdout) == MADE


def test_a_key_that_is_saved_is_not_shown_and_is_used(call: Call, api: Api, config: Path) -> None:
    file = keep(config, OTHER)
    result = call("keys", "create", "ci", "--save")

    assert result.exit_code == 0, result.output
    assert KEY not in result.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == [HOST], "no partial file is left"
    call("jobs", "list")
    assert api.authorization == f"Bearer {KEY}"


def test_the_folder_of_keys_is_its_users_alone(call: Call, config: Path) -> None:
    call("keys", "create", "ci", "--save")

    assert stat.S_IMODE((config / "nextfire" / "keys").stat().st_mode) == 0o700


def test_a_key_that_cannot_be_saved_is_reported(call: Call, config: Path) -> None:
    config.write_text("a file")

    result = call("keys", "create", "ci", "--save", NEXTFIRE_API_KEY=OTHER)

    assert result.exit_code == 1
    assert "Revoke it" in result.stderr
    assert KEY not in result.output


def test_a_repeated_create_without_the_key_text_fails(call: Call, api: Api) -> None:
    api.routes["POST /v1/keys"] = SHOWN

    result = call("keys", "create", "ci")

    assert result.exit_code == 1
    assert "rotate 3f9c0a77d1e2b456" in result.stderr


def test_list_and_revoke_show_what_is_known(call: Call) -> None:
    listed = call("keys", "list").stdout
    revoked = call("keys", "revoke", "3f9c0a77d1e2b456").stdout

    for text in ("3f9c0a77d1e2b456", "ci", "write", "ACTIVE", "2026-08-22", "2026-05-24"):
        assert text in listed
    assert "REVOKED" in revoked


def test_rotate_shows_the_new_key_and_the_end_of_the_old_one(call: Call, api: Api) -> None:
    result = call("keys", "rotate", "3f9c0a77d1e2b456", "--overlap", "2h", "--expires", "30d")

    assert result.exit_code == 0, result.output
    assert api.body == {"overlapSec": 7200, "expiresInSec": 30 * 86_400}
    assert result.stdout == KEY + "\n"
    assert "2026-05-25T12:00:00Z" in result.stderr
    call("keys", "rotate", "3f9c0a77d1e2b456")
    assert api.body == {}
    call("keys", "rotate", "3f9c0a77d1e2b456", "--overlap", "0")
    assert api.body == {"overlapSec": 0}


@pytest.mark.parametrize(
    "args",
    [
        ["create", "ci", "--expires", "1830d1s"],
        ["create", "ci", "--expires", "0"],
        ["create", "ci", "--expires", "soon"],
        ["create", "ci", "--scope", "root"],
        ["create", "ci", "--tenant", "acme"],
        ["create", "ci", "--stack", "Nextfire"],
        ["rotate", "3f9c0a77d1e2b456", "--overlap", "31d"],
        ["create"],
    ],
)
def test_wrong_usage_sends_no_request(call: Call, api: Api, args: list[str]) -> None:
    assert call("keys", *args).exit_code == 2
    assert not api.requests


REGION = "eu-west-1"


@pytest.fixture
def deployed() -> Iterator[Any]:
    """The AWS account of a deployed stack, with its table of keys."""
    with mock_aws():
        session = boto3.Session("a", "s", region_name=REGION)
        session.client("dynamodb").create_table(
            TableName="the-keys",
            KeySchema=[
                {"AttributeName": "tenant", "KeyType": "HASH"},
                {"AttributeName": "key_id", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in ("tenant", "key_id")
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield session


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The outputs of the CloudFormation stack; tests may change them."""
    outputs = {"KeysTable": "the-keys", "Auth": "keys", "ApiUrl": ENDPOINT}
    monkeypatch.setattr(Account, "outputs", lambda _, stack: outputs if stack == "Nextfire" else {})
    return outputs


FIRST = ("keys", "create", "admin", "--first", "--stack", "Nextfire")


def checked(session: Any, text: str) -> Any:
    """The key that the authorizer finds for *text*."""
    store = DynamoDbKeyStore(session.client("dynamodb"), table="the-keys")
    presented = parse(text)
    assert presented is not None
    key = store.get(presented.tenant, presented.key_id)
    assert key is not None
    return CheckKey(store).check(f"Bearer {text}", key.created_at).key


def test_the_first_key_is_written_by_aws_credentials(
    call: Call, deployed: Any, api: Api, outputs: dict[str, str]
) -> None:
    assert outputs
    result = call(*FIRST, AWS_REGION=REGION)

    assert result.exit_code == 0, result.output
    [text] = result.stdout.split()
    key = checked(deployed, text)
    assert key.scopes == {Scope.ADMIN}
    assert (key.tenant, key.name) == ("123456789012", "admin")
    assert not api.requests, "no API is called"


def test_the_first_key_of_a_tenant_is_saved_for_the_api(
    call: Call, deployed: Any, api: Api, config: Path, outputs: dict[str, str]
) -> None:
    assert outputs
    result = call(
        *FIRST, "--tenant", "acme", "--scope", "write", "--expires", "1d", "--save",
        AWS_REGION=REGION, NEXTFIRE_ENDPOINT=None,
    )  # fmt: skip

    assert result.exit_code == 0, result.output
    text = (config / "nextfire" / "keys" / HOST).read_text().strip()
    assert text not in result.output
    key = checked(deployed, text)
    assert (key.tenant, key.scopes) == ("acme", {Scope.WRITE})
    assert (key.expires_at - key.created_at).days == 1
    call("jobs", "list")
    assert api.authorization == f"Bearer {text}"


@pytest.mark.parametrize("changes", [{"Auth": "iam"}, {"Auth": ""}, {"KeysTable": None}])
def test_a_stack_without_keys_gets_none(
    call: Call, outputs: dict[str, str], changes: dict[str, str | None]
) -> None:
    for name, value in changes.items():
        outputs.pop(name)
        if value is not None:
            outputs[name] = value

    result = call(*FIRST, AWS_REGION=REGION)

    assert result.exit_code == 1
    assert "takes no API keys" in result.stderr


@pytest.mark.usefixtures("outputs", "deployed")
def test_an_invalid_tenant_of_a_key_is_rejected(call: Call) -> None:
    result = call(*FIRST, "--tenant", "a/b", AWS_REGION=REGION)

    assert result.exit_code == 1
    assert "tenant" in result.stderr


@pytest.mark.usefixtures("deployed")
def test_credentials_without_permission_to_write_keys_are_reported(
    call: Call, outputs: dict[str, str]
) -> None:
    outputs["KeysTable"] = "elsewhere"

    result = call(*FIRST, AWS_REGION=REGION)

    assert result.exit_code == 1
    assert "dynamodb:PutItem" in result.stderr


def test_the_first_key_needs_a_stack(call: Call) -> None:
    result = call("keys", "create", "admin", "--first")

    assert result.exit_code == 1
    assert "--stack Nextfire" in result.stderr
