"""Contexts: `nextfire login` and `nextfire context`, and what uses them."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire import Client, ClientError
from nextfire.client.access import find_key
from nextfire.client.contexts import Context, change_contexts, read_contexts
from nextfire.domain.key_text import secret_of, write_key
from nextfire_cli.main import app
from tests.file_limit import files_at_most
from tests.local_stack import KEY as STACK_KEY
from tests.local_stack import pretend_stack

PROD, STAGE = "https://prod.example.com", "https://stage.example.com"
KEY, OTHER = (write_key("acme", each * 16, secret_of(bytes(32))) for each in "ab")
VARIABLES = ("ENDPOINT", "API_KEY", "TOKEN", "AUTH", "CONTEXT")
Call = Callable[..., Result]


class Api:
    """Accepts all; records which key came to which host."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        key = request.headers["Authorization"].removeprefix("Bearer ")
        self.calls.append((str(request.url.host), key))
        if request.url.path == "/v1/quotas":
            quotas: dict[str, Any] = {"quotas": {}, "used": {}, "weight": 1}
            return httpx2.Response(200, json=quotas)
        return httpx2.Response(200, json={"items": []})


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the contexts, of a user without variables."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in VARIABLES:
        monkeypatch.delenv(f"NEXTFIRE_{name}", raising=False)
    return tmp_path / "config" / "nextfire" / "contexts.json"


@pytest.fixture
def call(file: Path, api: Api) -> Call:
    del file

    def run(*args: str, stdin: str | None = None, **variables: str) -> Result:
        transport = httpx2.MockTransport(api)
        return CliRunner().invoke(app, [*args], input=stdin, env=variables, obj=transport)

    return run


def test_a_login_is_checked_saved_for_its_user_and_used(call: Call, api: Api, file: Path) -> None:
    first = call("login", f"{PROD}/v1", stdin=f"{KEY}\n")
    second = call("login", STAGE, "--name", "test", stdin=OTHER)

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert api.calls == [("prod.example.com", KEY), ("stage.example.com", OTHER)]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert KEY not in first.output + repr(read_contexts(file))
    assert [*file.parent.iterdir()] == [file]

    call("jobs", "list")
    call("jobs", "list", "--context", "prod")
    call("jobs", "list", NEXTFIRE_CONTEXT="prod")
    assert call("context", "use", "prod").exit_code == 0
    call("jobs", "list")

    hosts = [host.partition(".")[0] for host, _ in api.calls[2:]]
    assert hosts == ["stage", "prod", "prod", "prod"]
    assert [key for _, key in api.calls[2:]] == [OTHER, KEY, KEY, KEY]


def test_credentials_that_the_api_rejects_are_not_saved(call: Call, file: Path) -> None:
    rejecting = httpx2.MockTransport(lambda _: httpx2.Response(403, json={"message": "Forbidden"}))
    assert call("context", "list").exit_code == 0
    result = CliRunner().invoke(app, ["login", PROD], input=KEY, obj=rejecting)

    assert result.exit_code == 4
    assert not file.exists()
    unchecked = CliRunner().invoke(app, ["login", PROD, "--no-check"], input=KEY, obj=rejecting)
    assert unchecked.exit_code == 0
    assert file.exists()


@pytest.mark.parametrize("key", ["", "nonsense", KEY[:-1]])
def test_a_malformed_key_is_not_saved_or_shown(call: Call, api: Api, file: Path, key: str) -> None:
    result = call("login", PROD, stdin=key)

    assert result.exit_code == 1
    assert "does not hold a valid API key" in result.stderr
    assert not key or key not in result.output
    assert not api.calls
    assert not file.exists()


def test_the_environment_overrides_the_context(call: Call, api: Api) -> None:
    call("login", PROD, stdin=KEY)
    del api.calls[:]

    call("jobs", "list", NEXTFIRE_API_KEY=OTHER)
    call("jobs", "list", NEXTFIRE_ENDPOINT=STAGE, NEXTFIRE_API_KEY=OTHER)
    call("jobs", "list", "--endpoint", STAGE, NEXTFIRE_API_KEY=OTHER, NEXTFIRE_CONTEXT="prod")
    used = call("context", "use", "prod", NEXTFIRE_ENDPOINT=STAGE)

    prod, stage = "prod.example.com", "stage.example.com"
    assert api.calls == [(prod, OTHER), (stage, OTHER), (stage, OTHER)]
    assert "NEXTFIRE_ENDPOINT is set, and overrides the context." in used.stderr


def test_the_key_of_a_context_goes_to_its_endpoint_only(call: Call, api: Api) -> None:
    call("login", PROD, stdin=KEY)
    del api.calls[:]

    assert call("jobs", "list", "--endpoint", STAGE, "--auth", "keys").exit_code == 1
    assert not api.calls


def test_a_local_stack_is_called_in_its_folder(call: Call, api: Api) -> None:
    call("login", PROD, stdin=KEY)
    pretend_stack(Path.cwd())
    del api.calls[:]

    used = call("context", "use", "prod")
    call("jobs", "list")
    call("jobs", "list", "--context", "prod")

    assert "add --context prod" in used.stderr
    assert api.calls == [("127.0.0.1", STACK_KEY), ("prod.example.com", KEY)]


def test_contexts_are_listed_without_keys_and_deleted(call: Call, file: Path) -> None:
    assert "nextfire login URL" in call("context", "list").stdout
    call("login", PROD, stdin=KEY)
    call("login", STAGE, "--auth", "iam", "--profile", "ops", "--region", "eu-west-1", "--no-check")

    listed = call("context", "list", "--json")
    items = json.loads(listed.stdout)["items"]
    assert [(each["context"], each["current"], each["credentials"]) for each in items] == [
        ("prod", False, "API key"),
        ("stage", True, "iam, profile ops"),
    ]
    assert call("context", "list", "-o", "name").stdout == "prod\nstage\n"
    assert call("context", "delete", "stage").exit_code == 1
    assert call("context", "delete", "stage", "--yes").exit_code == 0
    assert read_contexts(file).selected() is None
    assert [*read_contexts(file).by_name] == ["prod"]


def test_an_unknown_context_is_answered_with_the_known_ones(call: Call) -> None:
    call("login", PROD, stdin=KEY)
    for args in (["jobs", "list", "--context", "x"], ["context", "use", "x"]):
        result = call(*args)
        assert result.exit_code == 3
        assert "Context 'x' was not found. Known: prod." in result.stderr
    both = call("jobs", "list", "--context", "prod", "--endpoint", STAGE)
    assert both.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "[" * 100_000, '{"contexts": {"a": 1}}', '{"contexts": {"a": {}}}'),
        '{"contexts": {"a": {"endpoint": "https://x.example"}}, "current": ["a"]}',
        '{"contexts": {"a": {"endpoint": "https://x.example", "key": 5}}, "current": "a"}',
        '{"contexts": {"a": {"endpoint": "https://x.example", "region": {}}}, "current": "a"}',
    ],
)
def test_a_damaged_file_is_named(call: Call, file: Path, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    file.write_text(text)

    result = call("jobs", "list")

    assert result.exit_code == 1
    assert f"{file} does not contain contexts." in result.stderr
    assert call("up", "--help").exit_code == 0


def test_a_file_that_others_can_read_is_not_used(call: Call, api: Api, file: Path) -> None:
    call("login", PROD, stdin=KEY)
    file.chmod(0o640)
    del api.calls[:]

    result = call("jobs", "list")

    assert f"chmod 600 {file}" in result.stderr
    assert not api.calls


def test_the_client_uses_contexts_as_the_command_does(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("login", PROD, stdin=KEY)
    call("login", STAGE, stdin=OTHER)
    del api.calls[:]

    def listed(**options: Any) -> None:
        with Client(transport=httpx2.MockTransport(api), **options) as client:
            client.list_jobs()

    listed()
    monkeypatch.setenv("NEXTFIRE_CONTEXT", "prod")
    listed()
    listed(endpoint=STAGE, key=OTHER)
    with pytest.raises(ClientError, match="the context selects"):
        listed(key=OTHER)

    prod, stage = ("prod.example.com", KEY), ("stage.example.com", OTHER)
    assert api.calls == [stage, prod, stage]


def test_the_key_of_a_context_comes_after_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del file
    assert find_key(PROD, None, KEY) == KEY
    monkeypatch.setenv("NEXTFIRE_API_KEY", OTHER)
    assert find_key(PROD, None, KEY) == OTHER
    assert KEY not in repr(Context(PROD, KEY))


def test_a_working_folder_that_was_deleted_is_an_error_with_a_remedy(
    call: Call, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = file.parents[2] / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    for command in (["jobs", "list"], ["up"], ["down", "--yes"], ["backup", "b"], ["doctor"]):
        result = call(*command)
        assert result.exit_code == 1, command
        assert "The working folder was deleted." in result.stderr
        assert "cd" in result.stderr
    with pytest.raises(ClientError, match="The working folder was deleted"):
        Client()


def test_contexts_that_two_processes_save_at_the_same_time_are_all_kept(file: Path) -> None:
    def save(number: int) -> None:
        change_contexts(file, lambda found: found.having(f"c{number}", Context(PROD)))

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(save, range(40)))

    assert len(read_contexts(file).by_name) == 40
    assert [*file.parent.iterdir()] == [file]


def test_contexts_that_cannot_be_saved_leave_no_copy_of_their_keys(file: Path) -> None:
    """As on a full disk."""
    change_contexts(file, lambda found: found.having("prod", Context(PROD, KEY)))

    with files_at_most(0), pytest.raises(ClientError, match="cannot be written"):
        change_contexts(file, lambda found: found.having("stage", Context(STAGE, OTHER)))

    assert [*file.parent.iterdir()] == [file]
    assert read_contexts(file).current == "prod"
