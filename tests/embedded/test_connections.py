"""Clients that keep their connections to the API."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import httpx2

from tests.embedded.conftest import Stack


def test_idle_connections_of_one_client_do_not_keep_others_out(stack: Stack) -> None:
    """A client with a thread pool keeps a connection for each thread, for as long as it lives."""
    url = httpx2.URL(stack.info.endpoint)
    with ExitStack() as idle:
        for _ in range(150):
            idle.enter_context(socket.create_connection((str(url.host), int(url.port or 80))))

        assert httpx2.get(f"{url}/v1/health", timeout=10).status_code == 200
