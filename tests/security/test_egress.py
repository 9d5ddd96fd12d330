"""Which network addresses scripts reach, with the real sandbox and a server on the host."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent

import pytest

from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.egress import OPEN, Egress
from nextfire.domain.ports.scripts import ScriptCall
from tests.places import open_folder
from tests.supervisors import Watch

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="listed hosts require a root worker")

TRIES = """
import os, socket, sys, urllib.request
port = int(sys.stdin.read())
for family, address in (
    (socket.AF_INET, ("127.0.0.1", port)),
    (socket.AF_INET, ("169.254.169.254", 80)),
    (socket.AF_INET, ("192.0.2.1", 443)),
    (socket.AF_INET6, ("2001:db8::1", 443)),
):
    # Its own loopback accepts datagrams without a receiver.
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)[: 1 if address[1] == port else 2]:
        try:
            with socket.socket(family, kind) as tried:
                tried.settimeout(2)
                tried.connect(address)
                tried.send(b"x")
                print("reached", address, kind)
        except OSError:
            pass
"""


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server on the host."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder("test-egress-") as path:
        yield path


def run(
    folder: Path, egress: Egress, source: str, port: int, environment: dict[str, str] | None = None
) -> tuple[str, str]:
    """The output of a script and the log of its executor."""
    runner = ProcessScriptRunner(temp_root=folder, egress=egress)
    call = ScriptCall(
        "s.py", dedent(source).encode(), str(port), timedelta(seconds=20), "acme", environment or {}
    )
    end = runner.run(call, Watch())
    assert end.exit_code == 0, end
    return end.stdout, end.stderr


def test_without_egress_nothing_is_reached(folder: Path, port: int) -> None:
    assert run(folder, Egress.parse("none"), TRIES, port) == ("", "")


def test_with_open_egress_the_hosts_server_is_reached(folder: Path, port: int) -> None:
    assert "reached ('127.0.0.1'" in run(folder, OPEN, TRIES, port)[0]


@only_root
def test_around_the_proxy_nothing_is_reached(folder: Path, port: int) -> None:
    assert run(folder, Egress.parse("api.example.com"), TRIES, port) == ("", "")


@only_root
def test_the_proxy_refuses_hosts_that_are_not_listed_and_the_log_says_so(
    folder: Path, port: int
) -> None:
    source = """
        import urllib.error, urllib.request
        for url in ("http://other.example.com/", "http://169.254.169.254/latest/meta-data/"):
            try:
                print(urllib.request.urlopen(url, timeout=5).read())
            except urllib.error.HTTPError as error:
                print(error.code)
    """
    printed, log = run(folder, Egress.parse("api.example.com"), source, port)

    assert printed == "403\n403\n"
    assert "other.example.com:80 refused by the pool's egress" in log
    assert "169.254.169.254:80 refused by the pool's egress" in log


@only_root
def test_the_job_roles_server_is_reached_from_its_own_network(folder: Path, port: int) -> None:
    source = """
        import os, urllib.request
        print(urllib.request.urlopen(os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]).read())
    """
    address = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{port}/1"}

    printed, _ = run(folder, Egress.parse("api.example.com"), source, port, address)

    assert printed == "b'hello'\n"


@only_root
def test_listed_hosts_are_refused_where_they_cannot_be_enforced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nextfire.adapters.scripts.sandboxes.probe_host", lambda _: HostFeatures(namespaces=False)
    )

    with pytest.raises(ValueError, match="listed hosts require network namespaces"):
        ProcessScriptRunner(temp_root=folder, egress=Egress.parse("api.example.com"))


def test_no_network_is_refused_where_it_cannot_be_enforced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nextfire.adapters.scripts.sandboxes.probe_host", lambda _: HostFeatures(filters=False)
    )

    with pytest.raises(ValueError, match="requires a seccomp filter"):
        ProcessScriptRunner(temp_root=folder, egress=Egress.parse("none"))


@only_root
@pytest.mark.parametrize("egress", ["none", "api.example.com"])
def test_sockets_of_the_hosts_services_are_not_reached(
    folder: Path, port: int, egress: str
) -> None:
    place = Path(tempfile.mkdtemp(prefix="nextfire-test-", dir="/run"))
    try:
        place.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as service:
            service.bind(str(place / "socket"))
            (place / "socket").chmod(0o666)
            service.listen()
            source = f"""
                import socket
                try:
                    socket.socket(socket.AF_UNIX).connect({str(place / "socket")!r})
                    print("reached")
                except OSError:
                    pass
            """
            assert run(folder, Egress.parse(egress), source, port) == ("", "")
            assert run(folder, OPEN, source, port) == ("reached\n", "")
    finally:
        shutil.rmtree(place)
