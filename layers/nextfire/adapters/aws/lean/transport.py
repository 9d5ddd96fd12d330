"""HTTP with persistent connections. The standard library opens them, through a proxy if set."""

from __future__ import annotations

import math
import select
import socket
import time
import weakref
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLCertVerificationError, SSLEOFError, SSLSocket
from urllib.parse import unquote, urlsplit

from nextfire.adapters.aws.errors import UnansweredError, require_in_time
from nextfire.adapters.aws.lean.environment import proxy_for, tls_context
from nextfire.adapters.aws.lean.response import (
    ClosedError,
    ConnectionLostError,
    Response,
    read_response,
)

_MAX_IDLE = 32
_MAX_IDLE_TIME = 60.0
"""Seconds of the wall clock, which continues while Lambda freezes a process. Firewalls forget idle
connections, most after some minutes. Many do not answer what is sent afterwards.
"""


class TimedOutError(UnansweredError):
    """Connecting or reading the response timed out."""


class UntrustedCertificateError(UnansweredError):
    """The server's certificate is invalid. Nothing was sent."""


class Transport:
    """Sends POST requests to *endpoint*. Thread-safe; child processes do not inherit the sockets.

    *connect* and *read* are timeouts in seconds: for the connection, and for each wait for data.
    """

    def __init__(self, endpoint: str, *, connect: float, read: float) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port = str(parts.hostname), parts.port
        self._tls = parts.scheme == "https"
        self._connect_timeout, self._read_timeout = connect, read
        self._proxy = proxy_for(endpoint)
        if self._proxy is not None and not self._proxy.startswith("http://"):
            raise ValueError(
                "Invalid proxy: its URL must start with http://, for example "
                "HTTPS_PROXY=http://proxy.example.com:3128. NEXTFIRE_AWS_CLIENT=boto3 allows others"
            )
        # For plain HTTP a proxy gets the absolute URL; for TLS it opens a tunnel.
        plain = self._proxy is not None and not self._tls
        self._line = f"POST {endpoint if plain else ''}/ HTTP/1.1\r\n"
        self._headers = self._proxy_headers() if plain else {}
        self._idle: deque[Connection] = deque()
        weakref.finalize(self, _close, self._idle)

    def send(
        self, headers: Mapping[str, str], body: bytes, *, begun_at: float = math.inf
    ) -> Response:
        """Send a request and return its response, regardless of the status.

        Servers close connections after some idle time. If that happens to a request on a reused
        connection, before any byte of the response, it is resent immediately on a new connection.

        Args:
            headers: With `host`; names in lower case.
            body: Sent verbatim.
            begun_at: The start of the call, as in `require_in_time`.

        Raises:
            ConnectionLostError: See its docstring.
            TimedOutError: See its docstring.
            TooLateError: See its docstring.
            UntrustedCertificateError: See its docstring.
            ValueError: A header contains a line break.
        """
        request = self._encode(headers, body)
        used = self._take()
        if used is not None:
            with suppress(ClosedError):
                return self._exchange(used, request, begun_at)
        return self._exchange(self._connect(), request, begun_at)

    def _encode(self, headers: Mapping[str, str], body: bytes) -> bytes:
        sent = {**headers, **self._headers, "content-length": str(len(body))}
        head = "".join([f"{name}: {value}\r\n" for name, value in sent.items()])
        if head.count("\n") != len(sent) or head.count("\r") != len(sent):
            # The message omits the values: they may be secrets.
            raise ValueError("A header contains a line break. Check the AWS credentials for one")
        return f"{self._line}{head}\r\n".encode("latin-1") + body

    def _take(self) -> Connection | None:
        """Return an open connection that has not been idle for long, or None."""
        while self._idle:
            try:
                found = self._idle.pop()
            except IndexError:
                break  # another thread took it
            if time.time() - found.idle_since < _MAX_IDLE_TIME and found.is_open():
                return found
            found.close()
        return None

    def _exchange(self, connection: Connection, request: bytes, begun_at: float) -> Response:
        try:
            require_in_time(begun_at)
            response, keep = connection.exchange(request)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise _translate(error) from error
            raise
        if keep and len(self._idle) < _MAX_IDLE:
            connection.idle_since = time.time()
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def _connect(self) -> Connection:
        host, port = self._host, self._port
        if self._proxy is not None:
            parts = urlsplit(self._proxy)
            host, port = str(parts.hostname), parts.port or 80
        timeout = self._connect_timeout
        connection: HTTPConnection
        if self._tls:
            connection = HTTPSConnection(host, port, timeout=timeout, context=tls_context())
            if self._proxy is not None:
                connection.set_tunnel(self._host, self._port, self._proxy_headers())
        else:
            connection = HTTPConnection(host, port, timeout=timeout)
        try:
            connection.connect()
        except (OSError, HTTPException) as error:
            connection.close()
            raise _translate(error) from error
        connection.sock.settimeout(self._read_timeout)
        return Connection(connection.sock)

    def _proxy_headers(self) -> dict[str, str]:
        """Headers that authenticate with the user and password in the URL of the proxy."""
        parts = urlsplit(self._proxy or "")
        if not parts.username or not parts.password:
            return {}
        user = f"{unquote(parts.username)}:{unquote(parts.password)}"
        return {"proxy-authorization": f"Basic {b64encode(user.encode()).decode()}"}


class Connection:
    """A connected socket that carries one request at a time."""

    def __init__(self, its_socket: socket.socket) -> None:
        self._socket = its_socket
        self.idle_since = time.time()

    def exchange(self, request: bytes) -> tuple[Response, bool]:
        """Send *request*, and read its response as `read_response` does."""
        # A server may reject a request, and close, before it has read all of it.
        with suppress(ConnectionError, SSLEOFError):
            self._socket.sendall(request)
        # A new reader per response: surplus bytes are never read as the next response.
        with self._socket.makefile("rb") as reader:
            return read_response(reader)

    def is_open(self) -> bool:
        """Whether the idle connection is usable: not closed by the server, and no unread bytes."""
        if isinstance(self._socket, SSLSocket) and self._socket.pending():
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        self._socket.close()


def _close(connections: Iterable[Connection]) -> None:
    for connection in connections:
        connection.close()


def _translate(error: OSError | HTTPException) -> UnansweredError:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SSLCertVerificationError):
        return UntrustedCertificateError(
            f"Invalid certificate: {text}. Check the endpoint's host name and this machine's "
            "clock. Trust a private certificate authority with AWS_CA_BUNDLE, for example "
            "AWS_CA_BUNDLE=/etc/ssl/private-ca.pem"
        )
    return (TimedOutError if isinstance(error, TimeoutError) else ConnectionLostError)(text)
