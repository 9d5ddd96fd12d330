"""Attempts of a script to exhaust its executor by the proxy: connections, time, reports."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from nextfire.adapters.scripts import egress_proxy
from nextfire.adapters.scripts.bounded_server import (
    GUARANTEED_CONNECTIONS,
    MAX_CONNECTIONS_PER_RUN,
    CpuThrottle,
    SharedCapacity,
)
from nextfire.adapters.scripts.egress_proxy import MAX_HEAD, EgressProxy
from nextfire.domain.egress import Egress
from tests.security.egress_proxy.conftest import PATIENCE, Network, Proxy, read_all, serve


def test_large_upload_to_a_refused_host_gets_the_answer(proxy: Proxy) -> None:
    head = b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 300000\r\n\r\n"

    assert b"evil.example:80 is refused" in proxy.ask(head + b"x" * 300_000)


def test_upload_that_goes_on_after_the_answer_is_received(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most clients send all of a body before they read the answer."""
    monkeypatch.setattr(egress_proxy, "_RESPONSE_TIMEOUT", PATIENCE)
    with proxy.open() as client:
        client.sendall(b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 40000\r\n\r\n")
        assert b"evil.example:80 is refused" in read_all(client)
        for _ in range(40):
            client.sendall(b"x" * 1000)
            time.sleep(0.02)


def test_headers_without_end_are_cut_off(proxy: Proxy) -> None:
    answer = proxy.ask(b"CONNECT api.example.com:443 HTTP/1.1\r\nX: " + b"x" * MAX_HEAD)

    assert answer.startswith(b"HTTP/1.1 431 ")


def test_each_host_is_reported_once_and_no_more_than_64(proxy: Proxy) -> None:
    """Otherwise a script could fill its log, and the executor's memory, with names."""
    for n in range(80):
        proxy.connect(f"h{n}.evil.example:443")
        proxy.connect(f"h{n}.evil.example:444")

    assert [each[0] for each in proxy.refused] == [f"h{n}.evil.example" for n in range(64)]
    assert "further hosts are not reported" in proxy.refused[-1][2]


def test_failing_report_does_not_open_the_way(network: Network) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no log")

    proxy = EgressProxy(
        Egress.parse("none"), refused=fail, resolve=network.resolve, connect=network.connect
    )
    listener = socket.create_server(("127.0.0.1", 0))
    with proxy.serving(listener), socket.create_connection(listener.getsockname()) as client:
        client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 403 ")


def test_idle_connection_is_closed(network: Network) -> None:
    with serve(network, idle=0.01) as proxy, proxy.tunnel("api.example.com:443") as client:
        assert client.recv(1) == b""


def test_connection_in_use_outlives_the_idle_time(network: Network) -> None:
    with serve(network, idle=1) as proxy, proxy.tunnel("api.example.com:443") as client:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            time.sleep(0.05)


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def threads_of_servers() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("bounded-server", "egress-resolver"))]


def test_flood_of_connections_takes_no_more_than_its_share(network: Network) -> None:
    """Exploit: open connections and send nothing, until the executor runs out of descriptors."""
    room = SharedCapacity(0)
    with serve(network, room=room) as proxy, ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(proxy.open())
        with ExitStack() as served:
            # Another, honest run keeps its guaranteed connections.
            other = served.enter_context(serve(network, room=room))
            for _ in range(GUARANTEED_CONNECTIONS):
                tunnel = served.enter_context(other.tunnel("api.example.com:443"))
                tunnel.sendall(b"x")
                assert tunnel.recv(1) == b"x"
            assert room.open <= 2 * GUARANTEED_CONNECTIONS
            assert len(threads_of_servers()) <= 2 * 3, (
                "each proxy has a thread, and two that resolve"
            )


def test_one_run_holds_no_more_than_32_connections(network: Network) -> None:
    room = SharedCapacity(1000)
    with serve(network, room=room) as proxy, ExitStack() as stack:
        tunnels = [
            stack.enter_context(proxy.tunnel("api.example.com:443"))
            for _ in range(MAX_CONNECTIONS_PER_RUN)
        ]
        waiting = stack.enter_context(proxy.open())
        waiting.sendall(b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
        tunnels[0].sendall(b"x")
        assert tunnels[0].recv(1) == b"x"
        assert room.open == MAX_CONNECTIONS_PER_RUN
        # A connection is served as soon as another one ends.
        tunnels[1].close()
        assert waiting.recv(12) == b"HTTP/1.1 403"
        stack.close()
        _until(lambda: room.open == 0)


def test_end_of_a_run_closes_all_that_it_opened(network: Network) -> None:
    before, room = descriptors(), SharedCapacity(1000)
    with ExitStack() as stack:
        with serve(network, room=room) as proxy:
            for _ in range(10):
                stack.enter_context(proxy.tunnel("api.example.com:443"))
            for _ in range(50):
                stack.enter_context(proxy.open())
        assert (room.servers, room.open) == (0, 0)
        with pytest.raises(ConnectionRefusedError):
            proxy.open()
        network.close()  # its tunnel ends are descriptors of this process too
        stack.close()
        assert not {each for each in threads_of_servers() if "resolver" not in each}
        assert descriptors() < before, "the network's listener is closed, and no descriptor is left"


def test_server_that_uses_too_much_computing_time_waits() -> None:
    """Exploit: connect and get rejected in a loop, to starve the other runs of the interpreter."""
    room = SharedCapacity(0, servers=5)
    pace = CpuThrottle(lambda: room.share_of_core, now=100.0, spent=0.0)

    assert pace.delay(now=100.1, spent=0.1) == 0, "a burst is free"
    late = pace.delay(now=101.0, spent=1.0)
    assert late == pytest.approx(6.5), "0.65 s of a tenth of a core"
    assert pace.delay(now=101.0 + late, spent=1.0) == pytest.approx(0)
    room.add(servers=-4)
    assert pace.delay(now=101.0 + late, spent=1.5) == pytest.approx(1.0)


def test_unused_time_is_not_saved_up() -> None:
    pace = CpuThrottle(lambda: 0.5, now=0.0, spent=0.0)

    assert pace.delay(now=1000.0, spent=0.0) == 0
    assert pace.delay(now=1000.0, spent=1.25) == pytest.approx(2.0)
