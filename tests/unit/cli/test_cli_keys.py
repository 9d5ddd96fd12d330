"""`nextfire keys`: create, list, rotate and revoke keys by the API."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.unit.cli import keys
from tests.unit.cli.conftest import Api, Call
from tests.unit.cli.keys import HOST, KEY, MADE, OTHER, REGION, SHOWN, keep

ROUTES = keys.ROUTES


def test_create_shows_the_key_alone_on_standard_output(call: Call, api: Api) -> None:
    result = call("keys", "create", "ci", "--scope", "run", "--scope", "upload", "--expires", "30d")

    assert result.exit_code == 0, result.output
    assert api.body == {"name": "ci", "scopes": ["run", "upload"], "expiresInSec": 30 * 86_400}
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
