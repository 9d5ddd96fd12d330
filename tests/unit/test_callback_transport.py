"""The transport of callbacks, against real servers that do not behave."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.domain.errors import InvalidInputError
from nextfire.targets.http import transport as module
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.messages import CallFailedError, Problem, Request, Response
from nextfire.targets.http.tls import TlsSettings
from nextfire.targets.http.transport import Transport
from tests.integration.certificates import Authority

RULES = AddressRules.of(["127.0.0.0/8"], [0], http=True)
Behave = Callable[[socket.socket], None]


@contextmanager
def server(behave: Behave, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server on 127.0.0.1 that treats each connection by *behave*; yields its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=treat, args=(connection,), daemon=True).start()

        def treat(connection: socket.socket) -> None:
            try:
                with (
                    connection
                    if context is None
                    else context.wrap_socket(connection, server_side=True) as wire
                ):
                    behave(wire)
            except OSError:
                pass  # the client hung up

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def send(
    place: str,
    *,
    scheme: str = "http",
    timeout: float = 5,
    tls: TlsSettings | None = None,
    ask: Callable[[], bool] = lambda: False,
    resolve: module.Resolve = module.resolve,
) -> Response:
    request = Request("POST", f"{scheme}://{place}/a?b=c", {"X-Secret": "hunter2"}, b"hunter2")
    return Transport(RULES, resolve=resolve).send(request, tls=tls, timeout=timeout, ask=ask)


def failure(place: str, **options: Any) -> CallFailedError:
    with pytest.raises(CallFailedError) as failed:
        send(place, **options)
    assert "hunter2" not in repr(failed.value)
    return failed.value


def read(wire: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"hunter2"):
        data += wire.recv(4096)
    return data


def answering(data: bytes, kept: list[bytes] | None = None) -> Behave:
    def behave(wire: socket.socket) -> None:
        got = read(wire)
        if kept is not None:
            kept.append(got)
        wire.sendall(data)

    return behave


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nhi"


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
        *(b"", b"hello", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/9 2\r\n\r\n"),
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

    assert (failed.problem, failed.sent) == (Problem.PROTOCOL, True)


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


@pytest.mark.parametrize(
    "beginning",
    [b"", b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"],
)
def test_a_server_that_trickles_does_not_take_longer_than_the_timeout(beginning: bytes) -> None:
    def trickle(wire: socket.socket) -> None:
        wire.sendall(beginning)
        for _ in range(600):
            wire.sendall(b"x")
            time.sleep(0.05)

    with server(trickle) as place:
        failed = failure(place, timeout=1)

    assert failed.problem is Problem.TIMEOUT


def test_name_resolution_counts_toward_the_timeout() -> None:
    released = threading.Event()

    def hang(_host: str, _port: int) -> list[tuple[Any, ...]]:
        released.wait(30)
        return []

    failed = failure("example.com", timeout=0.3, resolve=hang)
    released.set()

    assert (failed.problem, failed.sent) == (Problem.TIMEOUT, False)


def test_a_call_ends_when_it_is_asked_to() -> None:
    with server(lambda wire: time.sleep(20) if read(wire) else None) as place:
        failed = failure(place, timeout=30, ask=lambda: True)

    assert (failed.problem, failed.sent) == (Problem.STOPPED, True)


def test_what_the_supervisor_raises_is_raised() -> None:
    def broken() -> bool:
        raise LookupError

    with (
        server(lambda wire: time.sleep(20) if read(wire) else None) as place,
        pytest.raises(LookupError),
    ):
        send(place, timeout=30, ask=broken)


def test_a_refused_connection_was_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    failed = failure(f"127.0.0.1:{port}")

    assert (failed.problem, failed.sent) == (Problem.CONNECT, False)


def test_the_next_address_is_tried() -> None:
    with server(answering(OK)) as place:
        port = int(place.rpartition(":")[2])

        def two(_host: str, _port: int) -> list[tuple[Any, ...]]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, ("127.0.0.2", 1)), (*kind, ("127.0.0.1", port))]

        found = send("example.com", resolve=two)

    assert found.status == 200


def _at(*places: tuple[int, tuple[Any, ...]]) -> module.Resolve:
    return lambda _host, _port: [(family, 1, 6, "", each) for family, each in places]


def test_a_machine_without_ipv6_uses_the_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIpv6(socket.socket):
        def __init__(self, family: int = -1, *options: Any, **more: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *options, **more)

    rules = AddressRules.of(["127.0.0.0/8", "::1/128"], [0], http=True)
    with server(answering(OK)) as place:
        port = int(place.rpartition(":")[2])
        both = _at((socket.AF_INET6, ("::1", port)), (socket.AF_INET, ("127.0.0.1", port)))
        monkeypatch.setattr(socket, "socket", WithoutIpv6)
        request = Request("POST", "http://example.com/", {}, b"hunter2")
        found = Transport(rules, resolve=both).send(request, timeout=5, ask=lambda: False)

    assert found.status == 200


def test_an_address_that_does_not_answer_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = socket.socket.connect

    def silent(self: socket.socket, address: Any) -> None:
        if address[0] == "127.0.0.2":
            time.sleep(self.gettimeout() or 60)
            raise TimeoutError
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", silent)
    with server(answering(OK)) as place:
        port = int(place.rpartition(":")[2])
        both = _at((socket.AF_INET, ("127.0.0.2", port)), (socket.AF_INET, ("127.0.0.1", port)))
        found = send("example.com", resolve=both, timeout=3)

    assert found.status == 200


@pytest.mark.parametrize("problem", [Problem.STOPPED, Problem.TIMEOUT])
def test_nothing_is_sent_after_a_call_was_reported_as_not_sent(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends in the moment in which the name is resolved."""
    kept: list[bytes] = []
    resolved = threading.Event()
    failed = module._Call.failed  # noqa: SLF001

    def slowly(self: Any, problem: Problem, text: str) -> CallFailedError:
        error = failed(self, problem, text)
        resolved.set()
        time.sleep(0.3)
        return error

    monkeypatch.setattr(module._Call, "failed", slowly)  # noqa: SLF001
    monkeypatch.setattr(module._Call, "_patience", lambda _: 5.0)  # noqa: SLF001
    with server(answering(OK, kept)) as place:
        port = int(place.rpartition(":")[2])

        def hang(_host: str, _port: int) -> list[tuple[Any, ...]]:
            resolved.wait(30)
            return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]

        error = failure(
            "example.com",
            resolve=hang,
            timeout=0.5 if problem is Problem.TIMEOUT else 30,
            ask=lambda: problem is Problem.STOPPED,
        )

    assert (error.problem, error.sent, kept) == (problem, False, [])


def test_a_call_that_waits_for_a_thread_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_threads", threading.BoundedSemaphore(1))
    module._threads.acquire()  # noqa: SLF001

    failed = failure("127.0.0.1:1", timeout=30, ask=lambda: True)

    assert (failed.problem, failed.sent) == (Problem.STOPPED, False)
    assert failure("127.0.0.1:1", timeout=0.3).problem is Problem.BUSY


def test_a_stopped_handshake_leaves_no_thread_behind() -> None:
    with server(lambda wire: time.sleep(20) if wire.recv(1) else None) as place:
        failed = failure(place, scheme="https", timeout=30, ask=lambda: True)

    assert (failed.problem, failed.sent) == (Problem.STOPPED, False)
    assert not [each for each in threading.enumerate() if each.name == "call"]


def test_a_name_that_is_not_found() -> None:
    def none(_host: str, _port: int) -> list[tuple[Any, ...]]:
        raise socket.gaierror(-2, "Name or service not known")

    failed = failure("example.com", resolve=none)

    assert (failed.problem, failed.sent) == (Problem.NAME, False)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    with server(answering(OK)) as place:
        assert send(place).status == 200


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_certificates_of_the_given_authority_are_trusted(authority: Authority) -> None:
    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(answering(OK), authority.server_context("127.0.0.1")) as place:
        found = send(place, scheme="https", tls=tls)

        assert found.status == 200
        assert found.timings.tls is not None
        failed = failure(place, scheme="https")
        assert (failed.problem, failed.sent) == (Problem.TLS, False)
        assert "certificate" in failed.text


@pytest.mark.parametrize(
    ("host", "valid_for"),
    [("localhost", timedelta(days=1)), ("127.0.0.1", timedelta(days=-1))],
)
def test_a_certificate_of_another_name_or_an_expired_one_is_rejected(
    authority: Authority, host: str, valid_for: timedelta
) -> None:
    tls = TlsSettings(ca=authority.bundle.read_text())
    context = authority.server_context(host, valid_for=valid_for)
    with server(answering(OK), context) as place:
        failed = failure(place, scheme="https", tls=tls)

    assert (failed.problem, failed.sent) == (Problem.TLS, False)


def test_a_balancer_that_ends_the_handshake_counts_as_no_connection(authority: Authority) -> None:
    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(lambda wire: wire.close()) as place:
        failed = failure(place, scheme="https")
        with_settings = failure(place, scheme="https", tls=tls)

    assert (failed.problem, failed.sent) == (Problem.CONNECT, False)
    assert with_settings.problem is Problem.TLS, "the settings of one job do not stop the others"


def test_a_server_without_tls_is_a_problem_of_tls() -> None:
    with server(lambda wire: wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as place:
        failed = failure(place, scheme="https")

    assert (failed.problem, failed.sent) == (Problem.TLS, False)


def test_an_invalid_certificate_setting_is_a_problem_of_tls() -> None:
    with server(answering(OK)) as place:
        assert failure(place, scheme="https", tls=TlsSettings(ca="x")).problem is Problem.TLS
        tls = TlsSettings(certificate="x", key="hunter2")
        assert failure(place, scheme="https", tls=tls).problem is Problem.TLS


def test_keys_of_calls_are_not_logged(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(log))
    tls = TlsSettings(ca=authority.bundle.read_text())
    with server(answering(OK), authority.server_context("127.0.0.1")) as place:
        assert send(place, scheme="https", tls=tls).status == 200

    assert not log.exists()


def test_a_client_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    context = authority.server_context("127.0.0.1")
    pem = (tmp_path / "server.pem").read_text()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.bundle)
    ca, key_end = authority.bundle.read_text(), pem.index("-----BEGIN CERTIFICATE")
    with server(answering(OK), context) as place:
        mutual = TlsSettings(ca=ca, certificate=pem[key_end:], key=pem[:key_end])
        assert send(place, scheme="https", tls=mutual).status == 200
        failed = failure(place, scheme="https", tls=TlsSettings(ca=ca))

    assert failed.problem in {Problem.TLS, Problem.PROTOCOL}


def test_many_calls_at_a_time_leave_no_threads_and_descriptors_behind() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with server(answering(OK)) as place:
        send(place)
        before = count()
        threads = [threading.Thread(target=send, args=(place,)) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until = time.monotonic() + 10
        while count() > before and time.monotonic() < until:
            time.sleep(0.05)

        assert count() <= before
    assert not [each for each in threading.enumerate() if each.name == "call"]


def test_a_call_without_a_thread_fails_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with server(answering(OK)) as place:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(module._MAX_THREADS + 1):  # noqa: SLF001
                assert failure(place).sent is False

        assert send(place).status == 200
