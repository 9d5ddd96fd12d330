"""`nextfire keys create --first`: AWS credentials write the first key of a stack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # noqa: TID251 - makes the table that the command finds
import pytest
from moto import mock_aws

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.key_text import parse
from nextfire.domain.keys import Scope
from nextfire.usecases.manage_keys import CheckKey
from nextfire_cli.aws import Account
from tests.unit.cli import answers, keys
from tests.unit.cli.conftest import Api, Call
from tests.unit.cli.keys import HOST, REGION

ROUTES = keys.ROUTES


@pytest.fixture
def deployed() -> Iterator[Any]:
    """The AWS account of a deployed stack, with its table of keys."""
    with mock_aws():
        session = boto3.Session("a", "s", region_name=REGION)
        keys.create_table(session.client("dynamodb"))
        yield session


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The outputs of the CloudFormation stack; tests may change them."""
    outputs = {"KeysTable": "the-keys", "Auth": "keys", "ApiUrl": answers.ENDPOINT}
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

    assert result.exit_code == 2
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
