"""Bounds what servers for scripts read of an HTTP request before they know who asks."""

from __future__ import annotations

from http.client import LineTooLong
from socketserver import StreamRequestHandler
from typing import Any

MAX_HEAD = 16 * 1024
"""Maximum bytes of a request line and its headers. The standard library accepts 6 MB."""


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


class BoundedHead(StreamRequestHandler):
    """For a `BaseHTTPRequestHandler`: refuses requests whose head exceeds `MAX_HEAD`. For one
    request per connection.
    """

    def setup(self) -> None:
        super().setup()
        self.rfile: Any = _Head(self.rfile)
