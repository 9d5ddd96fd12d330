"""Responses to callbacks: unusual ones are accepted, invalid ones are reported."""

from __future__ import annotations

import socket
import time

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.targets.http import transport as module
from nextfire.targets.http.messages import Failure, Request
from nextfire.targets.http.transport import Transport
from tests.unit.callback_transport.conftest import OK, RULES, answering, failure, read, send, server


def test_a_request_and_its_response() -> None:
    kept: list[bytes] = []
    with server(answering(OK, kept)) as place:
        found = send(place)

    assert (found.status, found.body, found.truncated) == (200, b"hi", False)
    assert ("X-A", "b") in found.headers
    assert found.address == place
    [request] = kept
    assert request.startswith(f"POST /a?b=c HTTP/1.1\r\nHost: {place}\r\n".encode())
    assert b"Content-Length: 7\r\n" in request
    assert b"Connection: close\r\n" in request
    timings = found.timings
    assert None not in (timings.dns, timings.connect, timings.first_byte, timings.total)


@pytest.mark.parametrize(
    "data",
    [
        *(b"hello", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/9 2\r\n\r\n"),
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n" * 20_000,
        b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" * 20_000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        *(b"HTTP/1.1 +200 OK\r\n\r\n", b"HTTP/1.1 2_00 OK\r\n\r\n", b"HTTP/1.x 200 OK\r\n\r\n"),
        *(
            b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\nhi"
            for header in (
                *(b"A", b"A : b", b": b", b"A: b\rContent-Length: 0", b"A: b\0c", b"A: b\r\n c"),
                *(b"Content-Length: -1", b"Content-Length: a", b"Content-Length: +2"),
                b"Content-Length: 2\r\nContent-Length: 1",
                b"Content-Length: 2\r\nTransfer-Encoding: chunked",
                b"Transfer-Encoding: gzip, chunked",
            )
        ),
        *(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nhi\r\n0\r\n\r\n"
            for size in (b"-2", b"+2", b"0x2", b"0_2", b"")
        ),
    ],
)
def test_an_invalid_response_is_a_problem_of_the_protocol(data: bytes) -> None:
    with server(answering(data)) as place:
        failed = failure(place)

    assert (failed.problem, failed.sent) == (Failure.PROTOCOL, True)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (b"A: b\r\n" * 100, "100 headers or more"),
        (b"A: " + b"b" * 70_000 + b"\r\n", "a header of over 65536 bytes"),
    ],
)
def test_headers_that_are_too_many_or_too_long_are_named(headers: bytes, why: str) -> None:
    with server(answering(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n")) as place:
        failed = failure(place)

    assert failed.text == f"the response is not valid HTTP: {why}"


def test_a_connection_that_is_closed_without_a_response_is_a_problem_of_its_own() -> None:
    with server(answering(b"")) as place:
        failed = failure(place)

    assert (failed.problem, failed.sent) == (Failure.CLOSED, True)


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_interim_responses_are_skipped(status: bytes) -> None:
    with server(answering(b"HTTP/1.1 " + status + b"\r\nLink: a\r\n\r\n" + OK)) as place:
        found = send(place)

    assert (found.status, found.body) == (200, b"hi")
    assert "Link" not in dict(found.headers)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"HTTP/1.0 200 OK\n\nhi", b"hi"),
        (b"HTTP/1.1 204\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", b"hi"),
        (
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
                b"2;a=b\r\nhi\r\n0\r\nDigest: a\r\n\r\n"
            ),
            b"hi",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \t\r\n\r\n2\r\nhi\r\n0\r\n\r\n", b"hi"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * 60_000
            + b"0\r\n",
            b"x" * 60_000,
        ),
    ],
)
def test_an_unusual_response_is_accepted(data: bytes, body: bytes) -> None:
    with server(answering(data)) as place:
        assert send(place).body == body


def test_a_response_to_a_part_of_the_request_is_returned() -> None:
    def reject(wire: socket.socket) -> None:
        wire.recv(1000)
        wire.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        wire.shutdown(socket.SHUT_WR)
        time.sleep(0.5)  # the client fills the buffers meanwhile

    with server(reject) as place:
        request = Request("POST", f"http://{place}/", {}, b"x" * 20_000_000)
        found = Transport(RULES).send(request, timeout=30, ask=lambda: False)

    assert found.status == 413


@pytest.mark.parametrize(
    "header",
    [
        *(("X-A", "hunter2\r\nB: c"), ("X-A", "hunter2\r\n c"), ("X-A", "hunter2\n")),
        *(("X-A", "hunter2\0"), ("X-A", "hunter2\u0142"), ("X-A\r\nB", "c"), ("", "a")),
    ],
)
def test_a_header_of_several_lines_is_not_sent(header: tuple[str, str]) -> None:
    kept: list[bytes] = []
    with server(answering(OK, kept)) as place:
        request = Request("POST", f"http://{place}/", dict([header]), b"hunter2")
        with pytest.raises(InvalidInputError) as invalid:
            Transport(RULES).send(request, timeout=5, ask=lambda: False)

    assert "hunter2" not in str(invalid.value)
    assert kept == []


def test_a_large_body_is_cut_without_reading_it() -> None:
    def flood(wire: socket.socket) -> None:
        read(wire)
        wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
        for _ in range(3000):
            wire.sendall(b"x" * 65_536)

    with server(flood) as place:
        found = send(place)

    assert (len(found.body), found.truncated) == (module.BODY_CAP, True)
