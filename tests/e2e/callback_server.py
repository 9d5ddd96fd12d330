"""A local HTTPS server that receives callbacks and responds as a test prescribes."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.integration.certificates import Authority

Responses = Callable[["Received"], "Reply"]


@dataclass(frozen=True)
class Received:
    """A request. `number`: from 1, of those with this path; `at`: when its headers had arrived."""

    path: str
    number: int
    at: datetime
    headers: dict[str, str]
    body: bytes
    method: str


@dataclass(frozen=True)
class Reply:
    """A response. `wait`: seconds before it is sent; `stream`: bytes to send instead of `body`."""

    status: int = 200
    body: bytes = b'{"received": true}'
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0
    stream: int = 0


class CallbackServer:
    """`responses`: the function that makes the responses, by path; by default 200. `client`: a
    certificate and key of *authority*, in PEM, for clients that must show one.
    """

    def __init__(self, url: str, authority: Authority) -> None:
        self.url = url
        self.ca = authority.bundle.read_text()
        self.client = authority.issue("client")
        self.responses: dict[str, Responses] = {}
        self._received: defaultdict[str, list[Received]] = defaultdict(list)
        self._lock = threading.Lock()

    def received(self, path: str) -> list[Received]:
        """The requests of *path* so far."""
        with self._lock:
            return list(self._received[path])

    def receive(self, handler: BaseHTTPRequestHandler) -> tuple[Received, Reply]:
        """Record a request; return it and its response."""
        at = datetime.now(UTC)
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        path = handler.path.partition("?")[0]
        with self._lock:
            number = len(self._received[path]) + 1
            one = Received(path, number, at, dict(handler.headers.items()), body, handler.command)
            self._received[path].append(one)
        respond: Responses = self.responses.get(path, _ok)
        return one, respond(one)


@contextmanager
def callback_server(
    folder: Path, scheme: str = "https", *, mutual: bool = False
) -> Iterator[CallbackServer]:
    """Run a server on 127.0.0.1; with https it has a certificate of a test authority. *mutual*:
    clients must show a certificate of that authority too.
    """
    authority = Authority(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            _, reply = ours.receive(self)
            time.sleep(reply.wait)
            size = reply.stream or len(reply.body)
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            if not reply.stream:
                self.wfile.write(reply.body)
                return
            for _ in range(reply.stream // 65536):
                self.wfile.write(b"x" * 65536)

        do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 512

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore clients that hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    if scheme == "https":
        context = authority.server_context("127.0.0.1")
        if mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.bundle)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    ours = CallbackServer(f"{scheme}://127.0.0.1:{server.server_port}", authority)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield ours
    finally:
        server.shutdown()
        server.server_close()


def _ok(_: Received) -> Reply:
    return Reply()


def json_of(received: Received) -> Any:
    """The JSON body of a request."""
    return json.loads(received.body)
