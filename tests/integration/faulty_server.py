"""A server in place of AWS that answers requests as a test specifies, including with faults."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from ssl import SSLContext
from zlib import crc32

LOST = None
"""Read the request, then close the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True, slots=True)
class Answer:
    """`body`: the bytes to send. `sent`: the number of bytes to send before the server waits for
    the client to hang up; None: all. `keep`: whether the connection stays open.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    sent: int | None = None
    keep: bool = True


def answer(document: object, status: int = 200, **headers: str) -> Answer:
    body = json.dumps(document).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(body, status, {"x-amz-crc32": str(crc32(body)), **named})


def refusal(code: str, status: int = 400, **headers: str) -> Answer:
    document = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as it is"}
    return answer(document, status, **headers)


Reply = Callable[[Request], Answer | None]


class FaultyServer:
    """Answers each request with the next item of `script`, and repeats the last item."""

    def __init__(self, listener: socket.socket) -> None:
        self.script: list[Answer | Reply | None] = []
        self.requests: list[Request] = []
        self.connections: list[socket.socket] = []
        self.tls: SSLContext | None = None  # None: plain HTTP
        self._listener = listener
        self._lock = threading.Lock()
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                number = len(self.connections)
                threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self.connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with suppress(OSError), self._secured(connection, number) as secured:
            self._answer_all(secured, number)

    def _secured(self, connection: socket.socket, number: int) -> socket.socket:
        """*connection* after the TLS handshake, if the server has TLS.

        Raises:
            OSError: The client does not accept the certificate.
        """
        if self.tls is None:
            return connection
        secured = self.tls.wrap_socket(connection, server_side=True)
        self.connections[number - 1] = secured  # it has taken over the socket
        return secured

    def _answer_all(self, connection: socket.socket, number: int) -> None:
        with connection.makefile("rb") as stream:
            while line := stream.readline():
                headers = {}
                while (header := stream.readline().strip()) != b"":
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", "0")))
                request = Request(line.decode().strip(), headers, body, number)
                if not self._reply(connection, request):
                    connection.shutdown(socket.SHUT_RDWR)
                    return

    def _reply(self, connection: socket.socket, request: Request) -> bool:
        with self._lock:
            self.requests.append(request)
            reply = self.script[min(len(self.requests), len(self.script)) - 1]
        if callable(reply):
            reply = reply(request)
        if reply is None:
            return False
        headers = {
            "Date": formatdate(usegmt=True),
            "Content-Type": "application/x-amz-json-1.0",
            "Content-Length": str(len(reply.body)),
            **reply.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        part = reply.body if reply.sent is None else reply.body[: reply.sent]
        connection.sendall(f"HTTP/1.1 {reply.status} X\r\n{head}\r\n".encode() + part)
        if reply.sent is not None:
            connection.recv(1)  # until the client hangs up
            return False
        return reply.keep


@contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        server = FaultyServer(listener)
        threading.Thread(target=server.accept, daemon=True).start()
        try:
            yield server
        finally:
            server.close()
