"""How programs in a sandbox reach the proxy: a relay, and variables."""

from __future__ import annotations

import socket

from nextfire.adapters.scripts.egress_proxy import proxy_environment, relay
from tests.security.egress_proxy.conftest import PATIENCE, Network, read_all


def test_relay_reaches_its_one_address(network: Network) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with (
        relay(listener, network._address),  # noqa: SLF001 — its server
        socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client,
    ):
        client.sendall(b"GET /1 HTTP/1.1\r\n\r\n")
        assert read_all(client).endswith(b"hi")


def test_relay_hangs_up_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    listener = socket.create_server(("127.0.0.1", 0))
    with (
        relay(listener, address),
        socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client,
    ):
        assert read_all(client) == b""


def test_programs_find_the_proxy_by_either_spelling() -> None:
    assert proxy_environment(8080) == {
        "HTTP_PROXY": "http://127.0.0.1:8080",
        "HTTPS_PROXY": "http://127.0.0.1:8080",
        "NO_PROXY": "127.0.0.1,localhost,::1",
        "http_proxy": "http://127.0.0.1:8080",
        "https_proxy": "http://127.0.0.1:8080",
        "no_proxy": "127.0.0.1,localhost,::1",
    }
