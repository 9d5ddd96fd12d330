"""Connections of the lean client that a server, or a firewall on the way, has forgotten."""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path
from ssl import SSLContext

import pytest

from nextfire.adapters.aws.lean.transport import Transport
from tests.integration.certificates import Authority
from tests.integration.faulty_server import FaultyServer
from tests.integration.one_read import FOUND

HEADERS = {"host": "127.0.0.1"}
LARGE = 20_000_000  # bytes: more than the sockets hold
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset


def test_a_connection_that_was_idle_for_long_is_not_used(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall drops what arrives on a connection that it has forgotten: no reset, no answer."""
    server.script = [FOUND]
    transport = Transport(server.address, connect=1, read=1)
    transport.send(HEADERS, b"{}")
    transport.send(HEADERS, b"{}")
    now = time.time()

    monkeypatch.setattr(time, "time", lambda: now + 61)
    transport.send(HEADERS, b"{}")

    assert [request.connection for request in server.requests] == [1, 1, 2]


def test_a_connection_that_is_used_each_minute_stays(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [FOUND]
    transport = Transport(server.address, connect=1, read=1)
    now = time.time()
    for seconds in (0, 40, 80, 120):
        monkeypatch.setattr(time, "time", lambda since=seconds: now + since)
        transport.send(HEADERS, b"{}")

    assert [request.connection for request in server.requests] == [1, 1, 1, 1]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_used_connection_that_is_reset_while_a_request_is_sent_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.bundle))
    tls = authority.server_context("localhost") if scheme == "https" else None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Thread(target=reset_the_second_request, args=(listener, tls))
        ended.start()
        address = f"{scheme}://localhost:{listener.getsockname()[1]}"
        transport = Transport(address, connect=4, read=4)

        assert transport.send(HEADERS, b"{}").body == b"1"
        assert transport.send(HEADERS, b" " * LARGE).body == b"2"
        ended.join()


def reset_the_second_request(listener: socket.socket, tls: SSLContext | None) -> None:
    with accepted(listener, tls) as first:
        first.recv(1000)
        first.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1")
        first.recv(1)
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    with accepted(listener, tls) as second:
        left = LARGE
        while left > 0:
            left -= len(second.recv(LARGE))
        second.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2")


def accepted(listener: socket.socket, tls: SSLContext | None) -> socket.socket:
    connection, _ = listener.accept()
    return connection if tls is None else tls.wrap_socket(connection, server_side=True)
