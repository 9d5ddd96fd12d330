"""The local stack's endpoint and key, and what is reported of a stack that lost a process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nextfire.client.folder import write_private
from nextfire_cli.local.state import LocalStackError, locked
from tests.unit.cli import answers
from tests.unit.cli.answers import LOCAL_KEY
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES


@pytest.fixture
def stack(tmp_path: Path) -> dict[str, Any]:
    """The state that `nextfire up` writes to the parent of the working directory."""
    return {
        "endpoint": "http://127.0.0.1:4566/_aws/execute-api/abc/$default",
        "aws_endpoint": "http://127.0.0.1:4566",
        "region": "us-east-1",
        "account_id": "000000000000",
        "access_key": "LOCALKEY",
        "secret_key": "local",
        "key_file": str(tmp_path / ".nextfire" / "api-key"),
        "scripts_bucket": "scripts",
        "outputs_bucket": "outputs",
        "event_bus": "events",
        "tables": {},
        "pools": {},
        "functions": {},
        "roles": {},
        "processes": [],
    }


@pytest.fixture
def up(
    stack: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    def write() -> None:
        (tmp_path / ".nextfire").mkdir(mode=0o755)
        write_private(tmp_path / ".nextfire" / "stack.json", json.dumps(stack))
        write_private(tmp_path / ".nextfire" / "api-key", LOCAL_KEY + "\n")
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")

    return write


def test_the_local_stack_is_found_from_below_and_called_with_its_key(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    path = "/_aws/execute-api/abc/$default/v1/jobs"
    api.routes[f"GET {path}"] = {"items": []}
    up()

    result = call("jobs", "list", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 0, result.output
    assert str(api.requests[0].url).startswith(stack["endpoint"])
    assert api.requests[0].headers["Authorization"] == f"Bearer {LOCAL_KEY}"
    call("jobs", "list", "--auth", "iam", NEXTFIRE_ENDPOINT=None)
    assert "Credential=LOCALKEY/" in api.requests[1].headers["Authorization"]


def test_a_local_stack_that_takes_no_keys_gets_signed_requests(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    stack |= {"endpoint": "http://127.0.0.1:4566", "auth": "iam"}
    up()

    result = call("jobs", "list", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 0, result.output
    assert "Credential=LOCALKEY/" in api.requests[0].headers["Authorization"]


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_a_local_stack_that_is_named_is_called_with_its_key(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None], end: str
) -> None:
    stack["endpoint"] = "http://127.0.0.1:4566"
    up()

    result = call("jobs", "list", "--endpoint", f"http://localhost:4566{end}")

    assert result.exit_code == 0, result.output
    assert api.requests[0].url.path == "/v1/jobs"
    assert api.requests[0].headers["Authorization"] == f"Bearer {LOCAL_KEY}"


def test_a_local_stack_whose_key_is_gone_says_so(
    call: Call, api: Api, up: Callable[[], None], tmp_path: Path
) -> None:
    up()
    (tmp_path / ".nextfire" / "api-key").unlink()

    result = call("jobs", "list", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "start it again" in result.stderr
    assert not api.requests


def test_another_endpoint_is_never_sent_the_local_stacks_key(
    call: Call, api: Api, up: Callable[[], None]
) -> None:
    up()

    call("jobs", "list")

    assert "Credential=AKIDEXAMPLE/" in api.requests[0].headers["Authorization"]


def test_a_stack_that_lost_a_process_gets_no_request(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    stack["processes"] = [{"name": "ministack", "pid": 99_999_999, "started": "another time"}]
    up()

    result = call("status", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "lost one of its processes: ministack." in result.stderr
    assert not api.requests


def test_a_stack_that_lost_a_worker_says_so_and_answers(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    dead = {"name": "worker-default-0", "pid": 99_999_999, "started": "another time"}
    stack["processes"] = [*stack["processes"], dead]
    stack["deaths"] = {"worker-default-0": {"count": 1, "last": "killed by SIGKILL"}}
    base = "GET /_aws/execute-api/abc/$default/v1"
    api.routes[f"{base}/health"] = {"status": "ok", "time": "2026-05-24T10:00:00Z"}
    missing = {"title": "Not Found", "status": 404, "detail": ""}
    api.routes[f"{base}/overview"] = httpx2.Response(404, json=missing)
    api.routes[f"{base}/executions"] = {"items": []}
    api.routes[f"{base}/quotas"] = answers.QUOTAS
    up()

    result = call("status", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "does not run, died once, last killed by SIGKILL" in result.stdout
    assert "Not on time: worker-default-0 does not run." in result.stderr


@pytest.mark.parametrize("command", ["up", "demo"])
def test_the_emulator_needs_a_checkout(call: Call, command: str) -> None:
    result = call(command, "--emulator")

    assert result.exit_code == 1
    assert "not in a checkout" in result.stderr


def test_the_embedded_stack_has_no_limits_of_aws(call: Call) -> None:
    result = call("up", "--strict")

    assert result.exit_code == 1
    assert "--strict needs --emulator" in result.stderr
    assert "nextfire up --emulator --strict" in result.stderr


def test_down_without_a_stack_leaves_no_files(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = call("down")

    assert result.exit_code == 0, result.stderr
    assert "has no local stack: nothing was removed." in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_second_down_finds_no_stack(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / ".nextfire"
    locked(state).close()  # as `up` leaves it
    (state / "embedded").mkdir()
    (state / "processes.json").write_text("[]")

    first, second = call("down", "--yes"), call("down", "--yes")

    assert "is stopped and removed." in first.stderr
    assert "has no local stack: nothing was removed." in second.stderr
    assert [each.name for each in state.iterdir()] == ["lock"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for state in (tmp_path / "file", Path("/proc/.nextfire")):
        with pytest.raises(LocalStackError, match=f"Cannot write the folder {state}, which"):
            locked(state)
