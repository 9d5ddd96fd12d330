"""The proxy to the package index, which all scripts of the machine can connect to."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from http import HTTPStatus
from http.client import HTTPConnection
from urllib.parse import urlsplit

from nextfire.adapters.packages.package_index import IndexProxy, PackageIndex


def test_a_long_head_is_refused_before_it_ends() -> None:
    """Otherwise a few connections would take all memory of the executor."""
    proxy = IndexProxy(PackageIndex("http://127.0.0.1:1/simple"), None)
    with (
        proxy.serving(),
        socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), 5) as client,
    ):
        client.sendall(b"GET / HTTP/1.0\r\n" + b"X: a\r\n" * 10 + b"X: " + b"a" * 16_400)

        assert client.recv(100).startswith(b"HTTP/1.0 431 ")


def test_connections_without_a_request_keep_no_installer_away() -> None:
    proxy = IndexProxy(PackageIndex("http://127.0.0.1:1/simple"), None)
    url = urlsplit(proxy.url)
    with proxy.serving(), ExitStack() as held:
        for _ in range(200):
            held.enter_context(socket.create_connection(("127.0.0.1", url.port or 0), 5)).send(
                b"GET /"
            )

        client = HTTPConnection("127.0.0.1", url.port, timeout=5)
        client.request("GET", f"{url.path}requests/")
        assert client.getresponse().status == HTTPStatus.BAD_GATEWAY, "no index is there"
        client.close()
