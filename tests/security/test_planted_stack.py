"""A cloned repository contains a planted `.nextfire/`: it gets no key of the user, and no process
or folder is harmed.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire.client import Client, ClientError
from nextfire_cli.local import LocalStack, LocalStackError
from nextfire_cli.local.processes import Processes, started
from nextfire_cli.local.stack_file import StackFile
from nextfire_cli.main import app
from nextfire_cli.output import Output
from nextfire_cli.session import Session

STACK_KEY = f"nf.000000000000.3f9c0a77d1e2b456.{'A' * 43}"
PRODUCTION_KEY = f"nf.acme.0123456789abcdef.{'B' * 43}"
USERS_KEY = f"nf.acme.fedcba9876543210.{'C' * 43}"
TOKEN = "token-of-production"
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"
AWS_KEY = "AKIDPRODUCTION"
OURS = (PRODUCTION_KEY, USERS_KEY, TOKEN, SECRET, AWS_KEY)

ELSEWHERE = [
    "https://evil.example",
    "http://evil.example:4566/v1",
    "http://127.0.0.1@evil.example",
    "http://127.0.0.1:4566@evil.example/",
    "http://user@127.0.0.1:4566",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "http://localhost.:4566",
    "http://evil.example#@127.0.0.1",
    "http://evil.example\\@127.0.0.1",
    "http://127.0.0.1\\.evil.example",
    "http://127.0.0.1:4566\n.evil.example",
    "http://2130706433:4566",
    "http://3405803777:4566",
    "http://0x7f000001:4566",
    "http://127.1:4566",
    "http://127.0.0.2:4566",
    "http://0.0.0.0:4566",
    "http://[::]:4566",
    "http://[::ffff:203.0.113.9]:4566",
    "http://[::ffff:127.0.0.1]:4566",
    "http://[fe80::1]:4566",
    "http://\uff11\uff12\uff17.0.0.1:4566",
    "http://127.0.0.1:99999999",
    "ftp://127.0.0.1",
    "//127.0.0.1:4566",
    "127.0.0.1:4566",
    "",
]


class Recorder:
    """A server on the loopback that records requests."""

    def __init__(self) -> None:
        came = self.came = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                came.append(f"{self.command} {self.path}\n{self.headers}\n{body!r}")
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(b'{"status": "ok", "time": "2026-05-24T10:00:00Z", "items": []}')

            do_GET = do_POST = do_PUT = answer  # noqa: N815 — the library's names

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def stole(self) -> list[str]:
        return [text for text in OURS if text in "\n".join(self.came)]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    Thread(target=recorder.server.serve_forever, daemon=True).start()
    yield recorder
    recorder.server.shutdown()
    recorder.server.server_close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with production keys in a variable and in files, and with AWS credentials."""
    home = tmp_path / "home"
    keys = home / ".config" / "nextfire" / "keys"
    keys.mkdir(parents=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_rsa").write_text(SECRET)
    (home / ".ssh" / "id_rsa").chmod(0o600)
    for host in ("127.0.0.1", "localhost", "evil.example"):
        (keys / host).write_text(USERS_KEY)
        (keys / host).chmod(0o600)
    for name, value in {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "NEXTFIRE_API_KEY": PRODUCTION_KEY,
        "NEXTFIRE_TOKEN": TOKEN,
        "AWS_ACCESS_KEY_ID": AWS_KEY,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-central-1",
        "AWS_CONFIG_FILE": str(home / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("NEXTFIRE_ENDPOINT", "NEXTFIRE_AUTH", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def clone(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository, which is the user's current folder."""
    clone = home / "clone"
    (clone / "infra").mkdir(parents=True)
    (clone / "infra" / "app.py").touch()
    (clone / "below").mkdir()
    monkeypatch.chdir(clone / "below")
    return clone


def plant(clone: Path, endpoint: str, **changes: Any) -> Path:
    """Write what `nextfire up` would have written, with *changes*, each file with mode 600."""
    state = clone / ".nextfire"
    state.mkdir(mode=0o755, exist_ok=True)
    document: dict[str, Any] = {
        "endpoint": endpoint,
        "aws_endpoint": "http://127.0.0.1:9",
        "region": "us-east-1",
        "account_id": "000000000000",
        "access_key": "test",
        "secret_key": "test",
        "key_file": str(state / "api-key"),
        "scripts_bucket": "scripts",
        "outputs_bucket": "outputs",
        "event_bus": "events",
        **{name: {} for name in ("tables", "pools", "functions", "roles")},
        "processes": [],
    }
    for name, text in {"stack.json": json.dumps(document | changes), "api-key": STACK_KEY}.items():
        if not (state / name).is_symlink():
            (state / name).write_text(text + "\n")
            (state / name).chmod(0o600)
    return state


Seen = list[httpx2.Request]


def by_client(seen: Seen | None = None, **options: Any) -> str:
    """The error of a Python client call in the folder, or empty. *seen*: collects its requests."""
    try:
        with Client(transport=_keeping(seen), retries=0, **options) as client:
            client.get_health()
    except ClientError as error:
        return str(error)
    return ""


def by_command(seen: Seen | None = None, *arguments: str) -> str:
    """The output of a failed CLI call, or empty."""
    result = call(*(arguments or ("status",)), transport=_keeping(seen))
    return "" if result.exit_code == 0 else result.output


def call(*arguments: str, transport: httpx2.BaseTransport | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments], obj=transport)


_ANSWER = {"status": "ok", "time": "2026-05-24T10:00:00Z", "items": []}


def _keeping(seen: Seen | None) -> httpx2.BaseTransport | None:
    def keep(request: httpx2.Request) -> httpx2.Response:
        assert seen is not None
        seen.append(request)
        return httpx2.Response(200, json=_ANSWER)

    return None if seen is None else httpx2.MockTransport(keep)


CALLS: list[Callable[..., str]] = [by_client, by_command]
calls = pytest.mark.parametrize("calls", CALLS)


@calls
@pytest.mark.parametrize("endpoint", ELSEWHERE)
def test_a_folder_selects_no_endpoint_but_the_loopback(
    clone: Path, calls: Callable[..., str], endpoint: str
) -> None:
    plant(clone, endpoint)
    seen: Seen = []

    refused = calls(seen)

    assert seen == []
    assert "stack.json" in refused
    assert "Traceback" not in refused


@calls
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_stack_on_the_loopback_is_used(clone: Path, calls: Callable[..., str], host: str) -> None:
    plant(clone, f"http://{host}:4566/_aws/execute-api/abc/$default")
    seen: Seen = []

    assert calls(seen) == ""
    assert {each.headers["Authorization"] for each in seen} == {f"Bearer {STACK_KEY}"}


@pytest.mark.parametrize("field", ["aws_endpoint", "dlq_url"])
@pytest.mark.parametrize("endpoint", ELSEWHERE)
def test_a_folder_selects_no_aws_but_the_loopback(clone: Path, field: str, endpoint: str) -> None:
    pool = {"executor": "worker", "queue_url": "http://127.0.0.1:9/q", "dlq_url": endpoint}
    changes = {"aws_endpoint": endpoint} if field == "aws_endpoint" else {"pools": {"a": pool}}
    plant(clone, "http://127.0.0.1:4566", **changes)

    for arguments in (
        ["worker"],
        ["keys", "create", "--first", "mine"],
        ["dlq", "list", "--pool", "a"],
    ):
        refused = call(*arguments)
        assert refused.exit_code == 1, refused.output
        assert "stack.json" in refused.output


@pytest.mark.parametrize("auth", [None, "keys", "jwt", "iam"])
@calls
def test_a_folders_endpoint_gets_the_stacks_own_key_only(
    clone: Path, recorder: Recorder, calls: Callable[..., str], auth: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plant(clone, recorder.url, aws_endpoint=recorder.url)
    if auth:
        monkeypatch.setenv("NEXTFIRE_AUTH", auth)

    said = calls()

    assert recorder.stole() == []
    if auth == "jwt":
        assert (recorder.came, "token" in said) == ([], True)
    elif auth == "iam":
        assert "Credential=test/" in recorder.came[0]
    else:
        assert f"Bearer {STACK_KEY}" in recorder.came[0]


@pytest.mark.parametrize(
    ("auth", "unset", "named"),
    [
        (None, None, ["NEXTFIRE_API_KEY", "NEXTFIRE_TOKEN"]),
        (None, "NEXTFIRE_TOKEN", ["NEXTFIRE_API_KEY"]),
        (None, "NEXTFIRE_API_KEY", ["NEXTFIRE_TOKEN"]),
        ("keys", None, ["NEXTFIRE_API_KEY"]),
        ("keys", "NEXTFIRE_API_KEY", []),
        ("iam", None, []),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_warns_once_of_variables_that_are_not_sent(
    clone: Path, recorder: Recorder, auth: str | None, unset: str | None, named: list[str],
    options: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plant(clone, recorder.url, aws_endpoint=recorder.url)
    if auth:
        monkeypatch.setenv("NEXTFIRE_AUTH", auth)
    if unset:
        monkeypatch.delenv(unset)

    result = call(*options, "status")

    assert result.exit_code == 0, result.output
    warned = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(warned) == bool(named)
    for name in ("NEXTFIRE_API_KEY", "NEXTFIRE_TOKEN"):
        assert (name in "".join(warned)) == (name in named)
    assert all("--endpoint URL" in line for line in warned)
    assert "Warning" not in result.stdout
    assert [text for text in OURS if text in result.output] == []
    assert recorder.stole() == []


def test_a_warning_is_printed_once_per_call(
    clone: Path, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(clone, recorder.url)
    caller = Session(None, output=Output.TABLE, profile=None, region=None)

    caller.client()
    caller.client()

    assert capsys.readouterr().err.count("Warning: ") == 1


def test_no_warning_where_the_variable_has_no_other_effect(
    clone: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, recorder.url)
    assert "Warning" not in call("--endpoint", recorder.url, "status").output

    monkeypatch.setenv("NEXTFIRE_API_KEY", STACK_KEY)
    monkeypatch.delenv("NEXTFIRE_TOKEN")

    assert "Warning" not in call("status").output


def test_a_key_that_is_given_goes_to_no_folders_endpoint(clone: Path, recorder: Recorder) -> None:
    plant(clone, recorder.url)

    assert "endpoint" in by_client(key=PRODUCTION_KEY)
    assert recorder.came == []


@calls
@pytest.mark.parametrize("access_key", ["", None])
def test_a_stack_without_credentials_is_not_sent_the_callers(
    clone: Path, recorder: Recorder, calls: Callable[..., str], access_key: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    plant(
        clone, recorder.url, aws_endpoint=recorder.url, access_key=access_key, secret_key=access_key
    )
    monkeypatch.setenv("NEXTFIRE_AUTH", "iam")

    assert "stack.json" in calls()
    call("keys", "create", "--first", "mine")
    call("dlq", "list")

    assert recorder.came == []


def test_an_endpoint_that_is_named_gets_the_callers_key(
    clone: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, "https://evil.example", key_file="/etc/hostname")
    monkeypatch.setenv("NEXTFIRE_ENDPOINT", recorder.url)

    assert by_client() == ""
    assert by_command() == ""
    assert {PRODUCTION_KEY in came for came in recorder.came} == {True}


def test_another_port_of_the_loopback_is_not_sent_the_stacks_key(
    clone: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, "http://127.0.0.1:9")
    monkeypatch.delenv("NEXTFIRE_API_KEY")

    call("--endpoint", recorder.url, "status")

    assert {STACK_KEY in came for came in recorder.came} == {False}


# The key file


def outside(state: Path, home: Path) -> str:
    assert state.is_dir()
    return str(home / ".ssh" / "id_rsa")


def above(state: Path, home: Path) -> str:
    assert home.is_dir()
    return f"{state}/../../.ssh/id_rsa"


def linked(state: Path, home: Path) -> str:
    (state / "api-key").unlink()
    (state / "api-key").symlink_to(home / ".ssh" / "id_rsa")
    return str(state / "api-key")


def linked_folder(state: Path, home: Path) -> str:
    (state / "keys").symlink_to(home / ".ssh")
    return str(state / "keys" / "id_rsa")


def hard_link(state: Path, home: Path) -> str:
    (state / "api-key").unlink()
    (state / "api-key").hardlink_to(home / ".ssh" / "id_rsa")
    return str(state / "api-key")


def users_key(state: Path, home: Path) -> str:
    assert state.is_dir()
    return str(home / ".config" / "nextfire" / "keys" / "evil.example")


def a_folder(state: Path, home: Path) -> str:
    assert home.is_dir()
    return str(state)


def a_pipe(state: Path, home: Path) -> str:
    assert home.is_dir()
    os.mkfifo(state / "pipe", 0o600)
    return str(state / "pipe")


def open_to_others(state: Path, home: Path) -> str:
    assert home.is_dir()
    (state / "api-key").chmod(0o640)
    return str(state / "api-key")


KEY_FILES: list[Callable[[Path, Path], str]] = [
    outside, above, linked, linked_folder, hard_link, users_key, a_folder, a_pipe, open_to_others,
]  # fmt: skip


@calls
@pytest.mark.parametrize("place", KEY_FILES)
def test_only_the_stacks_own_key_file_is_read(
    clone: Path, home: Path, recorder: Recorder, calls: Callable[..., str],
    place: Callable[[Path, Path], str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("NEXTFIRE_API_KEY")
    monkeypatch.delenv("NEXTFIRE_TOKEN")
    state = plant(clone, recorder.url)
    plant(clone, recorder.url, key_file=place(state, home))
    if place is open_to_others:
        (state / "api-key").chmod(0o640)
    if place is hard_link:
        (state / "api-key").write_text(SECRET)

    refused = calls()

    assert recorder.came == []
    assert refused
    assert SECRET not in refused


# Ownership of the files


@calls
@pytest.mark.parametrize(("name", "mode"), [("stack.json", 0o644), (".", 0o777), (".", 0o770)])
def test_files_that_others_could_have_written_select_nothing(
    clone: Path, recorder: Recorder, calls: Callable[..., str], name: str, mode: int
) -> None:
    state = plant(clone, recorder.url)
    (state / name).chmod(mode)

    refused = calls()

    assert recorder.came == []
    assert "nextfire up" in refused  # the remedy; also for a stack started by an older version


@calls
def test_files_of_another_user_select_nothing(
    clone: Path, recorder: Recorder, calls: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(clone, recorder.url)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)

    refused = calls()

    assert recorder.came == []
    assert "another user" in refused


@calls
def test_a_folder_that_is_a_link_selects_nothing(
    clone: Path, home: Path, recorder: Recorder, calls: Callable[..., str]
) -> None:
    plant(clone, recorder.url).rename(home / "state")
    (clone / ".nextfire").symlink_to(home / "state")

    refused = calls()

    assert recorder.came == []
    assert "link" in refused


@calls
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"a"', "null", '{"endpoint": 1}', "\xff", "[" * 9**5]
)
def test_an_invalid_stack_file_is_reported(
    clone: Path, calls: Callable[..., str], text: str
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    (state / "stack.json").write_text(text, encoding="latin-1")

    assert "stack.json" in calls()


def test_up_closes_what_an_older_version_left_open(clone: Path) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    stack = LocalStack(clone)
    info = stack.info()
    assert info is not None
    for name, mode in {"stack.json": 0o664, "api-key": 0o644, ".": 0o775}.items():
        (state / name).chmod(mode)

    stack._take_lock()  # noqa: SLF001 — the part of `up` that handles the folder
    StackFile(state).write(info)
    stack.stop()

    assert stat.S_IMODE(state.stat().st_mode) == 0o755
    stack._take_lock()  # noqa: SLF001
    StackFile(state).write(info)
    assert stat.S_IMODE((state / "stack.json").stat().st_mode) == 0o600
    stack.stop()


# What `up` and `down` end and delete


SLEEP = "import time; time.sleep(300)"
_NO_TIME = timedelta(0)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the user that has nothing to do with a stack."""
    folder = tmp_path / "home" / "project" / "of" / "mine"
    folder.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEP], cwd=folder, start_new_session=True, stdin=subprocess.DEVNULL
    )
    yield process
    process.kill()
    process.wait()


def planted_processes(state: Path, *records: dict[str, Any]) -> None:
    (state / "processes.json").write_text(json.dumps(records))
    (state / "processes.json").chmod(0o600)


def is_up(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        return True
    return False


def test_down_ends_no_process_that_a_planted_file_names(
    clone: Path, victim: subprocess.Popen[bytes]
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    planted_processes(
        state, {"name": "ministack", "pid": victim.pid, "started": started(victim.pid)}
    )

    assert call("down", "--yes").exit_code == 0

    assert is_up(victim)


def test_down_ends_no_group_whose_leader_is_gone(clone: Path, tmp_path: Path) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    script = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]);"
        "print(child.pid, flush=True)"
    )
    leader = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    leader.wait()
    planted_processes(state, {"name": "worker", "pid": leader.pid, "started": "1"})

    assert call("down", "--yes").exit_code == 0
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline and started(child):
        time.sleep(0.02)

    assert started(child)
    os.kill(child, 9)
    leader.stdout.close()


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_ids_that_mean_many_processes_are_never_taken(
    clone: Path, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    sent: list[tuple[int, int]] = []
    # Does not call them for real: a broken guard would end all processes of the machine.
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    monkeypatch.setattr(os, "killpg", lambda *args: sent.append(args))
    planted_processes(state, {"name": "worker", "pid": pid, "started": started(1) or "1"})

    assert call("down", "--yes").exit_code == 0

    assert sent == []


def test_down_ends_nothing_below_a_folder_that_a_link_names(
    clone: Path, home: Path, victim: subprocess.Popen[bytes]
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    (state / "tmp").symlink_to(home / "project")

    assert call("down", "--yes").exit_code == 1

    assert is_up(victim)
    assert (home / "project").is_dir()


def test_down_deletes_nothing_where_the_folder_is_a_link(clone: Path, home: Path) -> None:
    for name in ("tmp", "logs", "aws", "ministack"):
        (home / name).mkdir()
        (home / name / "dear.txt").touch()
    (clone / ".nextfire").symlink_to(home)

    assert call("down", "--yes").exit_code == 1

    assert len([*home.glob("*/dear.txt")]) == 4


def test_up_and_down_leave_the_folder_of_another_user_alone(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    (state / "logs").mkdir()
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)

    refused = call("down", "--yes")
    with pytest.raises(LocalStackError, match="another user"):
        LocalStack(clone).start(print)

    assert (refused.exit_code, (state / "logs").is_dir()) == (1, True)


def test_up_writes_through_no_link(clone: Path, home: Path) -> None:
    state = plant(clone, "http://127.0.0.1:9")
    dear = home / ".ssh" / "id_rsa"
    (state / "lock").symlink_to(dear)

    with pytest.raises(LocalStackError, match="link"):
        LocalStack(clone).start(print)

    assert dear.read_text() == SECRET


def test_what_a_killed_up_left_is_still_ended(tmp_path: Path) -> None:
    territory = tmp_path / "tmp"
    territory.mkdir()
    record = tmp_path / "processes.json"
    left = Processes(record, territory=territory).spawn(
        "worker",
        [sys.executable, "-c", SLEEP],
        environment={"TMPDIR": str(territory)},
        cwd=territory,
        log=tmp_path / "log",
    )
    later = Processes(record, territory=territory)

    later.end(later.recorded(), grace=_NO_TIME)

    assert left.wait(20) != 0
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
