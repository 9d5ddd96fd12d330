"""How the emulated stack is described, by the outputs of its deployment."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire_cli.local.emulator_notes import how_to_call
from nextfire_cli.local.stack_info import parts

FUNCTIONS = ("Api", "Watcher", "Auditor")
OUTPUTS = {
    "Pools": '{"default": "worker"}',
    "QueueUrlDefault": "http://q",
    "DlqUrlDefault": "http://d",
    "WorkerRoleArnDefault": "arn:worker",
    "ScriptsBucket": "scripts",
    "OutputsBucket": "outputs",
    "EventBus": "bus",
    **{f"{name}Function": name.lower() for name in FUNCTIONS},
    **{f"{name}RoleArn": f"arn:{name.lower()}" for name in FUNCTIONS},
}


def test_a_stack_that_checks_no_keys_has_no_authorizer() -> None:
    found: dict[str, Any] = parts(OUTPUTS)

    assert found["functions"] == {"api": "api", "watcher": "watcher", "auditor": "auditor"}
    assert found["roles"]["worker-default"] == "arn:worker"
    keys = parts(OUTPUTS | {"AuthorizerFunction": "a", "AuthorizerRoleArn": "arn:a"})
    assert "authorizer" in str(keys["functions"])


@pytest.mark.parametrize(("auth", "known"), [("keys", None), ("iam", "iam"), ("jwt", "jwt")])
def test_it_says_how_callers_are_known(auth: str, known: str | None) -> None:
    assert parts(OUTPUTS | {"Auth": auth})["auth"] == known


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        ("keys", None),
        ("iam", "nextfire signs"),
        ("jwt", "NEXTFIRE_ENDPOINT=http://127.0.0.1:1/api"),
    ],
)
def test_a_start_says_how_to_call_an_api_that_takes_no_key(auth: str, says: str | None) -> None:
    note = how_to_call(auth, "http://127.0.0.1:1/api")

    assert note is None if says is None else says in str(note)
