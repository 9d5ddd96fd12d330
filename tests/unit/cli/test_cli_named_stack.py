"""`--stack` names a stack on AWS, also in the folder of a local stack."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from nextfire_cli.aws import Account
from nextfire_cli.errors import CliError
from nextfire_cli.main import app
from nextfire_cli.session import Session
from tests.local_stack import pretend_stack

COMMANDS = [
    ["audit", "verify"],
    ["audit", "list"],
    ["dlq", "list"],
    ["keys", "create", "admin", "--first"],
    ["runs", "reindex"],
]


@pytest.fixture
def environment(
    tmp_path: Path, command_environment: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str | None]:
    """The variables of the command, in the folder of a local stack."""

    def outputs(account: Account, stack: str) -> dict[str, str]:
        raise CliError(f"The stack {stack} is read in {account.region}.")

    pretend_stack(tmp_path)
    monkeypatch.setattr(Account, "outputs", outputs)
    return command_environment | {"NEXTFIRE_ENDPOINT": None}


def call(environment: dict[str, str | None], *args: str) -> Result:
    return CliRunner().invoke(app, args, env=environment)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_named_stack_is_never_the_local_one(
    environment: dict[str, str | None], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain that was verified is that of the stack that was named."""

    def emulator(_: Session) -> Account:
        raise CliError("The local stack is read.")

    monkeypatch.setattr(Session, "account", emulator)

    result = call(environment | {"AWS_REGION": "eu-west-1"}, *command, "--stack", "Mine")

    assert "The stack Mine is read in eu-west-1." in result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", ["emulator", "embedded"])
def test_without_a_region_it_says_how_to_use_the_emulator(
    environment: dict[str, str | None],
    command: list[str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Session, "stack", lambda _: SimpleNamespace(kind=kind))

    result = call(environment, *command, "--stack", "Mine")

    assert result.exit_code == 1
    assert "No AWS region is given for the stack 'Mine'" in result.stderr
    assert "--stack Mine --region" in result.stderr
    assert ("leave out --stack" in result.stderr) == (kind == "emulator")
