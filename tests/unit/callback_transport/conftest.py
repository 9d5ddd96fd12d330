"""Calls to real servers that do not behave."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nextfire.targets.http import transport as module
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.messages import CallFailedError, Request, Response
from nextfire.targets.http.tls import TlsSettings
from nextfire.targets.http.transport import Transport

RULES = AddressRules.of(["127.0.0.0/8"], [0], http=True)
Behave = Callable[[socket.socket], None]


@contextmanager
def server(behave: Behave, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server on 127.0.0.1 that treats each connection by *behave*; yields its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=treat, args=(connection,), daemon=True).start()

        def treat(connection: socket.socket) -> None:
            try:
                with (
                    connection
                    if context is None
                    else context.wrap_socket(connection, server_side=True) as wire
                ):
                    behave(wire)
            except OSError:
                pass  # the client hung up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def send(
    place: str,
    *,
    scheme: str = "http",
    timeout: float = 5,
    tls: TlsSettings | None = None,
    ask: Callable[[], bool] = lambda: False,
    resolve: module.Resolve = module.resolve,
) -> Response:
    request = Request("POST", f"{scheme}://{place}/a?b=c", {"X-Secret": "hunter2"}, b"hunter2")
    return Transport(RULES, resolve=resolve).send(request, tls=tls, timeout=timeout, ask=ask)


def failure(place: str, **options: Any) -> CallFailedError:
    with pytest.raises(CallFailedError) as failed:
        send(place, **options)
    assert "hunter2" not in repr(failed.value)
    return failed.value


def read(wire: socket.socket) -> bytes:
    """The request.

    Raises:
        ConnectionError: The client hung up.
    """
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"hunter2"):
        more = wire.recv(4096)
        if not more:
            raise ConnectionError
        data += more
    return data


def answering(data: bytes, kept: list[bytes] | None = None) -> Behave:
    def behave(wire: socket.socket) -> None:
        got = read(wire)
        if kept is not None:
            kept.append(got)
        wire.sendall(data)

    return behave


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"
