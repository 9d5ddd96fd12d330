"""The commands that store, list and delete secrets, and the messages that name them."""

import json
from collections.abc import Callable
from pathlib import Path

import boto3  # noqa: TID251 — reads what the command stored
import pytest
from moto import mock_aws
from typer.testing import CliRunner, Result

from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.files.secrets import FileSecrets
from nextfire.domain.errors import NotFoundError
from nextfire.domain.references import ParameterReference, SecretReference
from nextfire_cli import secrets
from nextfire_cli.aws import Account
from nextfire_cli.errors import CliError
from nextfire_cli.main import app
from tests.local_stack import pretend_stack
from tests.unit.cli.answers import ENDPOINT

SECRET, PARAMETER = SecretReference(secret="billing/key"), ParameterReference(parameter="url")
AWS_CALLER = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}
Call = Callable[..., Result]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    environment = {"NEXTFIRE_ENDPOINT": None, "NEXTFIRE_CONTEXT": None}

    def run(*args: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, ["secrets", *args], input=stdin, env=environment)

    return run


def test_a_secret_is_stored_for_its_owner_and_found_by_jobs(call: Call, tmp_path: Path) -> None:
    pretend_stack(tmp_path)
    held = FileSecrets(tmp_path / ".nextfire/embedded/secrets", pool="default")
    (tmp_path / "url.txt").write_text("https://example.org\r\n")

    assert call("put", "billing/key", stdin="hunter2\n").exit_code == 0
    assert call("put", "--parameter", "url", "-f", "url.txt").exit_code == 0
    again = call("put", "billing/key", "-f", "-", stdin="hunter3")

    assert again.exit_code == 0, again.output
    assert 'Jobs of the pool default refer to it as {"secret": "billing/key"}' in again.stderr
    assert held.resolve("local", SECRET) == "hunter3"
    assert held.resolve("local", PARAMETER) == "https://example.org"
    files = [each for each in tmp_path.glob(".nextfire/embedded/secrets/**/*") if each.is_file()]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 2
    assert "hunter" not in again.output


@pytest.mark.parametrize(
    ("first", "second"),
    [("billing", "billing/key"), ("billing/key", "billing"), ("other", "x" * 256)],
)
def test_a_name_that_no_file_can_have_is_rejected_as_such(
    call: Call, tmp_path: Path, first: str, second: str
) -> None:
    pretend_stack(tmp_path)
    assert call("put", first, stdin="one").exit_code == 0

    rejected = call("put", second, stdin="two")

    assert rejected.exit_code == 1
    assert "Choose another name" in " ".join(rejected.stderr.split())
    assert "permissions" not in rejected.stderr


def test_the_value_is_asked_for_in_a_terminal(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_stack(tmp_path)
    monkeypatch.setattr(secrets, "in_terminal", lambda: True)

    result = call("put", "billing/key", stdin="hunter2\n")

    assert "Value of the secret" in result.stderr
    assert "hunter2" not in result.output
    held = FileSecrets(tmp_path / ".nextfire/embedded/secrets", pool="default")
    assert held.resolve("local", SECRET) == "hunter2"


@pytest.mark.parametrize(
    ("args", "stdin", "named"),
    [
        (["../key"], "x", "NAME"),
        (["key"], "", "Invalid value for standard input: the value is empty"),
        (["key", "-f", "-"], "", "Invalid value for --file: the value is empty"),
        (["key", "-f", "absent"], "", "--file"),
        (["key", "--pool", "absent"], "x", "--pool"),
    ],
)
def test_what_cannot_be_stored_is_wrong_usage(
    call: Call, tmp_path: Path, args: list[str], stdin: str, named: str
) -> None:
    pretend_stack(tmp_path)

    result = call("put", *args, stdin=stdin)

    assert result.exit_code == 2, result.output
    assert named in result.stderr


def test_without_a_local_stack_the_command_of_aws_is_named(call: Call) -> None:
    result = call("put", "billing/key", stdin="x")

    assert result.exit_code == 1
    assert "nextfire up" in result.stderr
    name = "nextfire/pools/default/TENANT/billing/key"
    assert f"aws secretsmanager create-secret --name {name} " in result.stderr


@pytest.mark.parametrize(
    ("pool", "reference", "command"),
    [
        ("default", SECRET, "nextfire secrets put billing/key"),
        ("batch", SECRET, "nextfire secrets put billing/key --pool batch"),
        ("default", PARAMETER, "nextfire secrets put --parameter url"),
    ],
)
def test_a_missing_secret_of_the_embedded_stack_names_the_command(
    tmp_path: Path, pool: str, reference: SecretReference | ParameterReference, command: str
) -> None:
    with pytest.raises(NotFoundError) as missing:
        FileSecrets(tmp_path, pool=pool).resolve("local", reference)

    assert str(missing.value).endswith(f": {command}")  # it was: "Create the secret."


def test_on_aws_a_missing_secret_names_the_commands() -> None:
    with mock_aws():
        session = boto3.Session("AKID", "secret", region_name="us-east-1")
        manager, store = session.client("secretsmanager"), session.client("ssm")
        held = AwsSecrets(manager, store, pool="default")
        name = "nextfire/pools/default/acme/billing/key"
        with pytest.raises(NotFoundError, match=f"create-secret --name {name} .*secrets put bill"):
            held.resolve("acme", SECRET)
        with pytest.raises(
            NotFoundError, match="put-parameter --name /nextfire/pools/default/acme"
        ):
            held.resolve("acme", PARAMETER)
        manager.create_secret(Name=name, SecretString="x")
        manager.delete_secret(SecretId=name)
        fresh = AwsSecrets(manager, store, pool="default")
        with pytest.raises(NotFoundError, match=f"restore-secret --secret-id {name}$"):
            fresh.resolve("acme", SECRET)


def test_the_emulator_keeps_secrets_where_jobs_look() -> None:
    with mock_aws():
        session = boto3.Session("AKID", "secret", region_name="us-east-1")
        account = Account(session)
        stored = account.secrets(pool="default", tenant="acme")
        for value in ("old", "new"):
            assert stored.store(SECRET, value) == "nextfire/pools/default/acme/billing/key"
            assert stored.store(PARAMETER, value) == "/nextfire/pools/default/acme/url"

        held = AwsSecrets(session.client("secretsmanager"), session.client("ssm"), pool="default")

        assert [held.resolve("acme", each) for each in (SECRET, PARAMETER)] == ["new", "new"]


def test_names_are_listed_and_deleted_on_the_embedded_stack(call: Call, tmp_path: Path) -> None:
    pretend_stack(tmp_path)
    assert call("list").stdout == (
        "No secrets in the pool default. Store one: nextfire secrets put NAME --pool default\n"
    )
    for name in ("billing/key", "@db"):
        call("put", name, stdin="hunter2")
    call("put", "--parameter", "url", stdin="hunter2")

    listed = call("list", "--json")

    assert json.loads(listed.stdout)["items"] == [
        {"kind": "secret", "name": "@db"},
        {"kind": "secret", "name": "billing/key"},
        {"kind": "parameter", "name": "url"},
    ]
    assert "add --yes" in call("delete", "url", "--parameter").stderr
    assert call("delete", "url", "--parameter", "-y").stdout == "Deleted parameter url.\n"
    assert call("delete", "billing/key", "--yes").exit_code == 0
    assert call("list", "-o", "name").stdout == "@db\n"
    again = call("delete", "billing/key", "--yes")
    assert again.exit_code == 3
    assert "The pool default has no secret billing/key." in again.stderr
    assert "hunter2" not in listed.output + again.output
    assert call("list", "--pool", "absent").exit_code == 2


def test_names_are_listed_and_deleted_on_aws(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS_CALLER.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        session = boto3.Session("AKID", "secret", region_name="us-east-1")
        manager, store = session.client("secretsmanager"), session.client("ssm")
        place = "nextfire/pools/default/123456789012/"
        for name in ("key", "billing/key"):
            manager.create_secret(Name=place + name, SecretString="hunter2")
        manager.create_secret(Name="nextfire/pools/default/1234567890123/key", SecretString="x")
        store.put_parameter(Name=f"/{place}url", Value="hunter2", Type="SecureString")

        def there(*args: str) -> Result:
            return call(*args, "--endpoint", ENDPOINT, "--auth", "iam")

        def names() -> list[str]:
            listed = there("list", "-o", "name")
            assert listed.exit_code == 0, listed.output
            return listed.stdout.split()

        assert names() == ["billing/key", "key", "url"]
        assert there("delete", "--yes", "key").exit_code == 0
        assert there("delete", "--yes", "--parameter", "url").exit_code == 0
        assert names() == ["billing/key"]
        manager.restore_secret(SecretId=f"{place}key")  # for 30 days
        for args in (["absent"], ["--parameter", "url"]):
            missing = there("delete", "--yes", *args)
            assert missing.exit_code == 3
            assert "The pool default has no " in missing.stderr


def test_secrets_of_aws_are_left_alone_while_the_local_stack_is_down(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in AWS_CALLER.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        manager = boto3.Session("AKID", "secret").client("secretsmanager", "us-east-1")
        name = "nextfire/pools/default/123456789012/key"
        manager.create_secret(Name=name, SecretString="hunter2")

        for args in (["list"], ["delete", "--yes", "key"]):
            result = call(*args)
            assert result.exit_code == 1
            assert "No endpoint: no local stack is running here." in result.stderr

        assert manager.get_secret_value(SecretId=name)["SecretString"] == "hunter2"


def test_a_secret_of_the_emulator_is_gone_at_once() -> None:
    with mock_aws():
        session = boto3.Session("AKID", "secret", region_name="us-east-1")
        held = Account(session).secrets(pool="default", tenant="acme")
        held.store(SECRET, "old")

        assert held.delete(SECRET, recoverable=False)
        held.store(SECRET, "new")

        assert held.names() == {"secret": ["billing/key"], "parameter": []}


def test_a_denied_listing_names_the_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    session = boto3.Session("AKID", "secret", region_name="us-east-1")
    held = Account(session, "http://127.0.0.1:9").secrets(pool="default", tenant="acme")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    with pytest.raises(CliError) as denied:
        held.names()

    assert "secretsmanager:ListSecrets" in denied.value.remedy
