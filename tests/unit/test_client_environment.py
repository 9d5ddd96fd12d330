"""The client and the variables of the environment that change how it connects."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nextfire import Client, ClientError
from nextfire_cli.local.health import await_answer, await_health
from tests.unit.client_calls import REMOTE

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"jobId": "job_1"}')

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("NEXTFIRE_TOKEN", "x")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_is_not_called_through_a_proxy(
    port: int, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The proxy would get the key of the local stack, unencrypted."""
    for name in PROXIES[:3]:
        monkeypatch.setenv(name, "http://192.0.2.1:9")

    with Client(f"http://{host}:{port}", auth="jwt", timeout=5, retries=0) as client:
        assert client.get_job("job_1").job_id == "job_1"


def test_a_local_stack_is_awaited_without_a_proxy(
    port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in PROXIES[:3]:
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # refuses connections
    endpoint, log = f"http://127.0.0.1:{port}", tmp_path / "log"

    await_health(endpoint, log=log)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        await_answer(process, endpoint, what="the stack", within=timedelta(seconds=5), log=log)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "socks5://192.0.2.1:9"),  # needs a package that is not installed
        ("ALL_PROXY", "ftp://192.0.2.1:9"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ClientError, match=f"Cannot connect to {REMOTE}: .*{name}"):
        Client(REMOTE, auth="jwt")
