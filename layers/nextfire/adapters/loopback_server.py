"""The base of the HTTP servers that scripts and installers of this machine call."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any


class LoopbackServer(ThreadingHTTPServer):
    """Listens on a free port of the loopback. Waits for no request when it is closed."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a client that disconnects or sends garbage is not worth a log entry."""

    def server_bind(self) -> None:
        """Bind without the host name lookup that HTTPServer makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.socket.getsockname()[1])


class LoopbackHandler(BaseHTTPRequestHandler):
    """Its responses do not show the versions of this process."""

    server_version = "nextfire"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a path has a secret or identifies an execution."""
