"""What `make deploy` says about what it cannot use: messages, not tracebacks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from infra import __main__ as command
from infra import app
from infra.account_check import CdkJsonError, settings_of
from infra.build import WrongWheelError
from infra.settings import Settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"context": {"groups": 1,}}', "cdk.json is not valid JSON: "),
        ('{"app": "python"}', None),
        ('{"context": []}', "cdk.json: `context` is not an object"),
    ],
)
def test_a_damaged_cdk_json_is_named(tmp_path: Path, text: str, said: str | None) -> None:
    (tmp_path / "cdk.json").write_text(text)

    if said is None:
        assert settings_of([], tmp_path) == Settings()
        return
    with pytest.raises(CdkJsonError, match=re.escape(said)):
        settings_of([], tmp_path)


def test_a_profile_that_does_not_exist_prevents_a_deployment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the command changes
    monkeypatch.setenv("AWS_PROFILE", "mistyped")

    assert command.main(["deploy"]) == 1

    err = capsys.readouterr().err
    assert "The config profile (mistyped) could not be found. Set AWS_PROFILE" in err


def test_an_npm_that_fails_is_reported_with_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_registry(_: Path) -> Path:
        raise subprocess.CalledProcessError(1, ["npm"], stderr="npm error ENOTFOUND registry")

    monkeypatch.setenv("PATH", os.environ["PATH"])  # which the command changes
    monkeypatch.setattr(command, "installed_cdk", no_registry)

    assert command.main(["synth"]) == 1

    assert "npm error ENOTFOUND registry" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (WrongWheelError("pydantic-2", ["cp312"], "arm64"), "pydantic-2 is built for cp312"),
        (subprocess.CalledProcessError(2, ["uv"]), "The code could not be built: Command"),
    ],
)
def test_code_that_cannot_be_built_is_a_message(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def build(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(app, "build_app", build)

    with pytest.raises(SystemExit, match=said):
        app.main()
