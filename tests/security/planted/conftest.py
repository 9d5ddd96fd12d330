"""A cloned repository that contains a planted `.nextfire/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire.client import Client, ClientError
from nextfire_cli.main import app
from tests.builders import key_text

STACK_KEY = key_text("000000000000")
PRODUCTION_KEY = key_text(letter="B")
USERS_KEY = key_text(letter="C")
TOKEN = "token-of-production"
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"
AWS_KEY = "AKIDPRODUCTION"
OURS = (PRODUCTION_KEY, USERS_KEY, TOKEN, SECRET, AWS_KEY)


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


# What `up` and `down` end and delete


SLEEP = "import time; time.sleep(300)"
