"""HTTP servers on the loopback, which scripts may attack before the server knows who asks."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

MAX_HEAD = 16 * 1024
"""Maximum bytes of a request line and its headers. The standard library accepts 6 MB."""
_POLL = 0.1  # seconds between checks for `stop` and request timeouts


class _Head:
    """The head of a request in *file*."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = MAX_HEAD
        self.close = file.close

    def readline(self, _most: int) -> bytes:
        """Return the next line.

        Raises:
            LineTooLong: The head is too long. `BaseHTTPRequestHandler` responds with 431.
        """
        line: bytes = self._file.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head")
        return line


class ScriptHandler(BaseHTTPRequestHandler):
    """Handles one request per connection. Refuses those whose head exceeds `MAX_HEAD`."""

    server_version = "nextfire"
    sys_version = ""
    server: ScriptServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.request_timeout)
        self.rfile: Any = _Head(self.rfile)

    def do_GET(self) -> None:
        self.server.has_come(self.request)
        self.answer()

    def answer(self) -> None:
        """Answer the complete request."""
        raise NotImplementedError

    def reply(
        self, status: HTTPStatus, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.begin(status, {**(headers or {}), "Content-Length": str(len(body))})
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the path is a secret, or identifies an execution."""


class ScriptServer(ThreadingHTTPServer):
    """Serves untrusted scripts on a free port.

    Connections with an incomplete request time out, and the oldest is closed if there are too many.
    Handlers bound the number of complete requests.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, handler: type[ScriptHandler], *, request_timeout: float, max_pending: int
    ) -> None:
        """Build.

        Args:
            handler: Handles one request.
            request_timeout: Seconds until a request must be complete.
            max_pending: Maximum number of connections with an incomplete request.
        """
        self.request_timeout = request_timeout
        self._max_pending = max_pending
        self._pending: dict[Any, float] = {}  # connection -> deadline of its request, oldest first
        self._lock = threading.Lock()  # held while closing, so that the descriptor is not reused
        super().__init__(("127.0.0.1", 0), handler)

    def start(self, name: str) -> str:
        """Serve in a thread with this *name*. Returns the URL, without a path.

        Raises:
            OSError: The process is out of threads. The server is closed.
        """
        thread = threading.Thread(target=self.serve_forever, args=(_POLL,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.server_close()  # not `stop`, which waits for the thread
            raise OSError(errno.EAGAIN, f"cannot start a thread: {error}") from error
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._pending[request] = time.monotonic() + self.request_timeout
            if len(self._pending) > self._max_pending:
                self._hang_up(next(iter(self._pending)))
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that timed out. Called at each poll and after each connection."""
        now = time.monotonic()
        with self._lock:
            for request in [each for each, until in self._pending.items() if until <= now]:
                self._hang_up(request)

    def has_come(self, request: Any) -> None:
        """Record that *request* was read completely."""
        with self._lock:
            self._pending.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        self.has_come(request)
        super().shutdown_request(request)

    def _hang_up(self, request: Any) -> None:
        """Close the connection *request*, which ends its thread."""
        del self._pending[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a client that disconnects or sends garbage is not worth a log entry."""

    def server_bind(self) -> None:
        """Bind without the host name lookup that HTTPServer makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.socket.getsockname()[1])
