"""What the transport of callbacks sends, and what it gets: a response, or a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from nextfire.dataclass import dataclass, field
from nextfire.domain.errors import InvalidInputError
from nextfire.targets.http.document import HEADER_VALUE

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `headers` and `body` may have secrets. `digest`: of what is the same in all
    replays; it has no secrets.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds for name lookup, connection, TLS, from the request to the first byte, and in all."""

    dns: float | None = None
    connect: float | None = None
    tls: float | None = None
    first_byte: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `truncated`: the body was longer than `body`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    truncated: bool
    address: str
    timings: Timings


class Failure(Enum):
    """Why a call failed. CLOSED: the receiver closed the connection before the end of its response.
    BUSY: this executor has no thread for it.
    """

    FORBIDDEN = "FORBIDDEN"
    NAME = "NAME"
    CONNECT = "CONNECT"
    TLS = "TLS"
    TIMEOUT = "TIMEOUT"
    CLOSED = "CLOSED"
    PROTOCOL = "PROTOCOL"
    STOPPED = "STOPPED"
    BUSY = "BUSY"


class CallFailedError(Exception):
    """The call got no response. `sent`: whether a byte of the request may have left. The text
    contains no part of the request.
    """

    def __init__(
        self,
        problem: Failure,
        text: str,
        *,
        sent: bool = False,
        address: str | None = None,
        timings: Timings | None = None,
    ) -> None:
        super().__init__(text)
        self.problem = problem
        self.text = text
        self.sent = sent
        self.address = address
        self.timings = timings or Timings()


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises InvalidInputError, which names the header only, if one is not a single line."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise InvalidInputError(
                "target.http.headers",
                name,
                "its value has line breaks, control characters or characters beyond Latin-1",
                "Use printable characters on one line.",
            )
