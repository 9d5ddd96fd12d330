"""Where the commands for dead letters find a queue if the call names no stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextfire_cli.aws import Account
from nextfire_cli.errors import CliError
from nextfire_cli.main import app


@pytest.mark.parametrize("command", [["list"], ["purge", "--yes"]])
def test_without_a_local_stack_no_queue_of_aws_is_taken_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    def outputs(_: Account, stack: str) -> dict[str, str]:
        raise CliError(f"The stack {stack} is read.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEXTFIRE_ENDPOINT", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setattr(Account, "outputs", outputs)

    refused = CliRunner().invoke(app, ["dlq", *command])

    assert refused.exit_code == 1
    assert "is read" not in refused.stderr
    assert "Start it with `nextfire up`" in refused.stderr
    assert "--stack Nextfire" in refused.stderr
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", "https://abc123.execute-api.eu-west-1.amazonaws.com")
    assert "Nextfire is read" in CliRunner().invoke(app, ["dlq", *command]).stderr


def test_a_queue_whose_region_is_unknown_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL of a private endpoint does not name its region."""
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    url = "https://sqs.example.com/1/dlq.fifo"

    result = CliRunner().invoke(app, ["dlq", "list", "--queue-url", url])

    assert result.exit_code == 1
    assert "AWS_REGION" in result.stderr
