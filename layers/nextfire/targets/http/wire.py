"""What `http.client` reads and writes: within the deadline, bounded, and strict about syntax.

`http.client` itself accepts much that is not HTTP: it takes the first of two lengths, ends the
headers at a line without a colon, and returns an interim response as the final one.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

_HEAD_CAP = 256 * 1024
"""Maximum bytes of status lines, headers and interim responses."""
_MAX_HEADERS, _MAX_LINE = 100, 64 * 1024
"""Of `http.client`, whose errors for more do not say so in a form that can be recorded."""
_FRAMING = 8
"""Maximum bytes received per byte of the body: a chunk of one byte takes six."""

_FIELD = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r?\n"
_STATUS = re.compile(rb"HTTP/1\.[01] [1-5][0-9]{2}( [\t\x20-\x7e\x80-\xff]*)?\r?\n|")
"""The empty line is the end of the connection, which `http.client` reports."""
_HEADER = re.compile(_FIELD + rb"|\r?\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(;[\t\x20-\x7e\x80-\xff]*)?\r?\n")
_TRAILER = re.compile(_FIELD + rb"|\r?\n|")
_LENGTH = re.compile(r"[0-9]{1,18}")


class MalformedResponseError(http.client.HTTPException):
    """The response is not valid HTTP. The text has no part of it."""


class Wire:
    """What `http.client` uses of a socket. *patience*: returns the seconds for the next operation,
    or raises TimeoutError. *cap*: the bytes of the body that the caller reads.
    """

    def __init__(self, connection: socket.socket, patience: Callable[[], float], cap: int) -> None:
        self._connection, self._patience, self._cap = connection, patience, cap
        self._left = _HEAD_CAP

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._connection.settimeout(self._patience())
            view = view[self._connection.send(view) :]

    def makefile(self, _mode: str) -> Lines:
        return Lines(_Reader(self), 16 * 1024)

    def start_body(self) -> None:
        """Bound the body instead of the headers from now on."""
        self._left = _HEAD_CAP + _FRAMING * self._cap

    def read_into(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        if self._left <= 0:
            raise MalformedResponseError("too many bytes in addition to the body")
        self._connection.settimeout(self._patience())
        size = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._left -= size
        return size

    def close(self) -> None:
        """Nothing: the connection is closed by its context."""


class _Reader(io.RawIOBase):
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        return self.wire.read_into(buffer)


class Lines(io.BufferedReader):
    """Checks the lines of a response: status lines, headers, sizes of chunks, and trailers."""

    def __init__(self, raw: _Reader, size: int) -> None:
        super().__init__(raw, size)
        self._wire = raw.wire
        self._expected = _STATUS
        self._headers = 0

    def start_body(self) -> None:
        self._expected = _CHUNK
        self._wire.start_body()

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line.

        Raises:
            MalformedResponseError: It is not what may come next.
        """
        line = super().readline(size)
        if len(line) > _MAX_LINE:
            raise MalformedResponseError(f"a {_NAMES[self._expected]} of over {_MAX_LINE} bytes")
        match = self._expected.fullmatch(line)
        if match is None:
            raise MalformedResponseError(f"an invalid {_NAMES[self._expected]}")
        if self._expected is _STATUS:
            self._expected, self._headers = _HEADER, 0
        elif self._expected is _HEADER and not line.strip():
            self._expected = _STATUS  # after an interim response
        elif self._expected is _HEADER:
            self._headers += 1
            if self._headers >= _MAX_HEADERS:
                raise MalformedResponseError(f"{_MAX_HEADERS} headers or more")
        elif self._expected is _CHUNK and int(match[1], 16) == 0:
            self._expected = _TRAILER
        return line


_NAMES = {_STATUS: "status line", _HEADER: "header", _CHUNK: "chunk", _TRAILER: "trailer"}


class _Response(http.client.HTTPResponse):
    """Skips interim responses, and accepts one length of the body only."""

    def begin(self) -> None:
        super().begin()
        while self.status < HTTPStatus.OK:
            if self.status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise MalformedResponseError("an upgrade that was not requested")
            self.headers = None  # type: ignore[assignment] # it reads the next one
            super().begin()
        lengths = {each.strip() for each in self.headers.get_all("Content-Length", [])}
        codings = [each.strip().lower() for each in self.headers.get_all("Transfer-Encoding", [])]
        if len(lengths) + len(codings) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise MalformedResponseError("an unclear length of the body")
        if codings not in ([], ["chunked"]):
            raise MalformedResponseError("an unsupported transfer encoding")
        self.chunked = self.length is None and bool(codings)
        self.chunk_left = None  # not set if the coding is followed by white space
        if isinstance(self.fp, Lines):
            self.fp.start_body()


class Connection(http.client.HTTPConnection):
    """An HTTP/1.1 connection over *wire*. Never connects by itself. *host*: without brackets.
    *port*: the port in `Host`; 0: none.
    """

    response_class = _Response
    default_port = 0
    auto_open = 0

    def __init__(self, host: str, port: int, wire: Wire) -> None:
        super().__init__(host, port)
        self.sock = wire  # the parts of a socket that it uses
