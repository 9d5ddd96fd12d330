"""Reads an HTTP/1.1 response from a stream.

The standard library reads headers with its parser for mail, which takes more CPU than everything
else that a small call needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

from nextfire.adapters.aws.errors import UnansweredError
from nextfire.dataclass import dataclass

_MAX_LINE = 64 * 1024
_MAX_HEADERS = 100
_NO_BODY = frozenset({204, 304})
_FIRST_FINAL = 200


class ConnectionLostError(UnansweredError):
    """The connection could not be made, or ended before the whole response was read."""


class ClosedError(ConnectionLostError):
    """The server closed the connection before the first byte of its response."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


def read_response(stream: BinaryIO) -> tuple[Response, bool]:
    """The response, and whether the server keeps the connection open after it.

    Raises:
        ClosedError: The stream has ended.
        ConnectionLostError: The response is cut off or malformed.
        OSError: The connection failed in the middle of the response.
    """
    try:
        line = stream.readline(_MAX_LINE)
    except ConnectionError as error:
        raise ClosedError(f"{type(error).__name__}: {error}") from error
    if not line:
        raise ClosedError("The server closed the connection without a response")
    status = _status_of(line)
    headers = _read_headers(stream)
    while status < _FIRST_FINAL:
        status = _status_of(stream.readline(_MAX_LINE))
        headers = _read_headers(stream)
    keep = line.startswith(b"HTTP/1.1") and headers.get("connection", "").lower() != "close"
    if status in _NO_BODY:
        return Response(status, headers, b""), keep
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Response(status, headers, _read_chunks(stream)), keep
    length = headers.get("content-length")
    if length is None:
        return Response(status, headers, stream.read()), False
    return Response(status, headers, _read(stream, _number(length, 10))), keep


def _status_of(line: bytes) -> int:
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():  # noqa: PLR2004
        raise ConnectionLostError(f"Not a status line of HTTP/1.1: {line[:80]!r}")
    return int(words[1])


def _read_headers(stream: BinaryIO) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS + 1):
        line = stream.readline(_MAX_LINE)
        if line in {b"\r\n", b"\n"}:
            return headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not line.endswith(b"\n"):
            raise ConnectionLostError(f"Not a header, or cut off: {line[:80]!r}")
        headers[name.strip().lower()] = value.strip()
    raise ConnectionLostError(f"The response has more than {_MAX_HEADERS} headers")


def _read_chunks(stream: BinaryIO) -> bytes:
    chunks = []
    while size := _number(stream.readline(_MAX_LINE).partition(b";")[0].decode("latin-1"), 16):
        chunks.append(_read(stream, size))
        _read(stream, 2)  # the end of the line
    _read_headers(stream)  # the trailer
    return b"".join(chunks)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionLostError(f"The response ended {size - len(data)} bytes early")
    return data


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise ConnectionLostError(f"Not the size of a body: {text[:80]!r}")
    return number
