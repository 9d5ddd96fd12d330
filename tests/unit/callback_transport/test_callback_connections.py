"""Addresses, time and threads of callbacks."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nextfire.targets.http import transport as module
from nextfire.targets.http.addresses import AddressRules
from nextfire.targets.http.messages import CallFailedError, Failure, Request
from nextfire.targets.http.transport import Transport
from tests.unit.callback_transport.conftest import OK, answering, failure, read, send, server


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

    assert failed.problem is Failure.TIMEOUT


def test_name_resolution_counts_toward_the_timeout() -> None:
    released = threading.Event()

    def hang(_host: str, _port: int) -> list[tuple[Any, ...]]:
        released.wait(30)
        return []

    failed = failure("example.com", timeout=0.29998, resolve=hang)
    released.set()

    assert (failed.problem, failed.sent) == (Failure.TIMEOUT, False)
    assert str(failed) == "no response within 0.3 s"  # what is left of the timeout, rounded


def test_a_call_ends_when_it_is_asked_to() -> None:
    with server(lambda wire: time.sleep(20) if read(wire) else None) as place:
        failed = failure(place, timeout=30, ask=lambda: True)

    assert (failed.problem, failed.sent) == (Failure.STOPPED, True)


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

    assert (failed.problem, failed.sent) == (Failure.CONNECT, False)


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


@pytest.mark.parametrize(
    ("place", "host"),
    [
        ("[2606:4700::a1]:8080", b"[2606:4700::a1]:8080"),
        ("[2606:4700::a1]", b"[2606:4700::a1]"),
        ("example.com:8080", b"example.com:8080"),
        ("example.com:80", b"example.com"),
    ],
)
def test_the_host_header_has_brackets_around_an_ipv6_address(place: str, host: bytes) -> None:
    kept: list[bytes] = []
    with server(answering(OK, kept)) as listening:
        port = int(listening.rpartition(":")[2])
        send(place, resolve=_at((socket.AF_INET, ("127.0.0.1", port))))

    assert b"\r\nHost: " + host + b"\r\n" in kept[0]


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


@pytest.mark.parametrize("problem", [Failure.STOPPED, Failure.TIMEOUT])
def test_nothing_is_sent_after_a_call_was_reported_as_not_sent(
    problem: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends in the moment in which the name is resolved."""
    kept: list[bytes] = []
    resolved = threading.Event()
    failed = module._Call.failed  # noqa: SLF001

    def slowly(self: Any, problem: Failure, text: str) -> CallFailedError:
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
            timeout=0.5 if problem is Failure.TIMEOUT else 30,
            ask=lambda: problem is Failure.STOPPED,
        )

    assert (error.problem, error.sent, kept) == (problem, False, [])


def test_a_call_that_waits_for_a_thread_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_threads", threading.BoundedSemaphore(1))
    module._threads.acquire()  # noqa: SLF001

    failed = failure("127.0.0.1:1", timeout=30, ask=lambda: True)

    assert (failed.problem, failed.sent) == (Failure.STOPPED, False)
    assert failure("127.0.0.1:1", timeout=0.3).problem is Failure.BUSY


def test_a_name_that_is_not_found() -> None:
    def none(_host: str, _port: int) -> list[tuple[Any, ...]]:
        raise socket.gaierror(-2, "Name or service not known")

    failed = failure("example.com", resolve=none)

    assert (failed.problem, failed.sent) == (Failure.NAME, False)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    with server(answering(OK)) as place:
        assert send(place).status == 200


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
