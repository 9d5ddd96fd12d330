"""Reading HTTP responses: every framing that servers use, and malformed ones."""

from __future__ import annotations

import io
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nextfire.adapters.aws.lean.response import ClosedError, ConnectionLostError, read_response
from nextfire.adapters.aws.lean.transport import Connection, Transport

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("sent", "body", "keep", "left"),
    [
        (OK + b"Content-Length: 2\r\n\r\n{}next", b"{}", True, b"next"),
        (OK + b"content-length: 0\r\n\r\nnext", b"", True, b"next"),
        (OK + b"Content-Length: 2\r\nConnection: Close\r\n\r\n{}", b"{}", False, b""),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}", False, b""),
        (OK + b"Connection: keep-alive\r\n\r\nto the end", b"to the end", False, b""),
        (
            OK
            + b"Transfer-Encoding: Chunked\r\n\r\n2\r\n{ \r\n1;x=y\r\n}\r\n0\r\nT: 1\r\n\r\nnext",
            b"{ }",
            True,
            b"next",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\n1", b"1", True, b""),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            + OK
            + b"Content-Length: 1\r\n\r\n1",
            b"1",
            True,
            b"",
        ),
        (b"HTTP/1.1 204\r\n\r\nnext", b"", True, b"next"),
        (OK + b"Content-Length: 1\n\n1", b"1", True, b""),
    ],
)
def test_the_body_ends_where_the_server_says(
    sent: bytes, body: bytes, keep: object, left: bytes
) -> None:
    stream = io.BytesIO(sent)

    response, kept = read_response(stream)

    assert (response.body, kept, stream.read()) == (body, keep, left)


def test_names_of_headers_are_in_lower_case_and_values_without_spaces() -> None:
    sent = OK + b"X-Amz-CRC32:  12 \r\nDate: Mon: 1\r\nContent-Length: 0\r\n\r\n"

    response, _ = read_response(io.BytesIO(sent))

    assert response.headers == {"x-amz-crc32": "12", "date": "Mon: 1", "content-length": "0"}


@pytest.mark.parametrize(
    "sent",
    [
        b"<html>",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        OK,
        OK + b"Content-Length: 2",
        OK + b"Content-Length: 2\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Content-Length: 2\r\n\r\n{",
        OK + b"Content-Length: -2\r\n\r\n{}",
        OK + b"Content-Length: two\r\n\r\n{}",
        OK + b"".join(b"h%d: 1\r\n" % number for number in range(101)) + b"\r\n",
        OK + b"h: " + b"1" * 70_000 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ],
)
def test_a_malformed_response_is_lost(sent: bytes) -> None:
    with pytest.raises(ConnectionLostError) as raised:
        read_response(io.BytesIO(sent))

    assert not isinstance(raised.value, ClosedError), "some bytes were received"


def test_a_connection_that_ends_before_the_first_byte_is_closed() -> None:
    with pytest.raises(ClosedError):
        read_response(io.BytesIO(b""))


@given(
    st.binary(max_size=300), st.sampled_from([b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"])
)
@example(b"\xb2: 1\r\nContent-Length: \xb2\r\n\r\n", OK)
def test_any_bytes_are_a_response_or_lost(tail: bytes, head: bytes) -> None:
    with suppress(ConnectionLostError):
        read_response(io.BytesIO(head + tail))


def test_bytes_after_a_response_are_not_read_as_the_next_one() -> None:
    near, far = socket.socketpair()
    with far, near:
        connection = Connection(near)
        far.sendall(OK + b"Content-Length: 1\r\n\r\n1" + OK + b"Content-Length: 6\r\n\r\nforged")
        assert connection.exchange(b"first")[0].body == b"1"
        far.sendall(OK + b"Content-Length: 1\r\n\r\n2")
        assert connection.exchange(b"second")[0].body == b"2"
        assert connection.is_open()

        far.sendall(b"unasked")

        assert not connection.is_open()


def test_a_response_to_part_of_a_request_is_read() -> None:
    near, far = socket.socketpair()
    with near:
        far.sendall(b"HTTP/1.1 413 Too large\r\nContent-Length: 0\r\n\r\n")
        far.close()

        assert Connection(near).exchange(b"x")[0].status == 413


def test_a_connection_that_was_closed_before_the_request_is_reported_as_such() -> None:
    near, far = socket.socketpair()
    with near:
        far.close()

        with pytest.raises(ClosedError):
            Connection(near).exchange(b"x")


def test_a_connection_that_the_server_closed_is_not_open() -> None:
    near, far = socket.socketpair()
    with near:
        far.close()

        assert not Connection(near).is_open()


def test_an_open_connection_is_used_rather_than_a_closed_one() -> None:
    """Of the idle ones, before a new one is made: here nothing listens."""
    transport = Transport("http://127.0.0.1:1", connect=1, read=1)
    pairs = [socket.socketpair() for _ in range(3)]
    transport._idle.extend(Connection(near) for near, _ in pairs)  # noqa: SLF001
    for _, far in pairs[1:]:
        far.close()
    far = pairs[0][1]

    def serve() -> None:
        assert far.recv(1000)
        far.sendall(OK + b"Content-Length: 1\r\n\r\n1")

    with far, ThreadPoolExecutor(1) as threads:
        served = threads.submit(serve)
        try:
            assert transport.send({"host": "127.0.0.1"}, b"{}").body == b"1"
        finally:
            far.shutdown(socket.SHUT_RDWR)
        served.result()


@pytest.mark.parametrize("value", ["token\n", "a\r\nx-amz-target: b"])
def test_a_header_with_a_line_break_is_refused_and_not_repeated(value: str) -> None:
    transport = Transport("http://127.0.0.1:1", connect=1, read=1)

    with pytest.raises(ValueError, match="line break") as raised:
        transport.send({"host": "127.0.0.1", "x-amz-security-token": value}, b"{}")

    assert "token" not in str(raised.value)


def test_a_proxy_that_is_reached_by_tls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "https://proxy.example.com")

    with pytest.raises(ValueError, match="must start with http://"):
        Transport("https://sqs.eu-central-1.amazonaws.com", connect=1, read=1)
