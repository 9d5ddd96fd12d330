"""Attempts of a script to reach hosts that its pool does not list, or to exhaust its executor."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from nextfire.adapters.scripts.bounded_server import (
    CHUNK,
    GUARANTEED_CONNECTIONS,
    MAX_CONNECTIONS_PER_RUN,
    CpuThrottle,
    SharedCapacity,
)
from nextfire.adapters.scripts.egress_proxy import (
    MAX_HEAD,
    EgressProxy,
    proxy_environment,
    relay,
)
from nextfire.domain.egress import Address, Egress

PUBLIC = "1.1.1.1"
PATIENCE = 20.0


class Network:
    """Host names, and one server on the loopback that stands in for every public address."""

    def __init__(self, names: dict[str, list[list[str]]]) -> None:
        self._names = names
        self.resolved: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.got: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        """The answers for *host*, one after the other; repeats the last one."""
        del port
        self.resolved.append(host)
        answers = self._names.get(host)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0])]

    async def connect(self, address: Address, port: int) -> socket.socket:
        self.connected.append((str(address), port))
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self._address)
        return sock

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)

    def _serve(self) -> None:
        with ThreadPoolExecutor(64) as pool:
            while True:
                try:
                    client, _ = self._listener.accept()
                except OSError:
                    return
                pool.submit(self._answer, client)

    def _answer(self, client: socket.socket) -> None:
        """Echo until the end; also answer a plain HTTP request."""
        with client, suppress(OSError):
            while data := client.recv(CHUNK):
                self.got.append(data)
                if data.startswith((b"GET ", b"POST ")):
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                    return
                client.sendall(data)


class Proxy:
    """A running proxy and its reports."""

    def __init__(self, address: tuple[str, int], refused: list[tuple[str, int, str]]) -> None:
        self.address = address
        self.refused = refused

    def open(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE)

    def ask(self, request: bytes) -> bytes:
        """The complete answer to *request*."""
        with self.open() as client:
            client.sendall(request)
            return read_all(client)

    def connect(self, authority: str) -> bytes:
        return self.ask(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())

    def tunnel(self, authority: str) -> socket.socket:
        client = self.open()
        client.sendall(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += client.recv(1)
        assert b" 200 " in answer
        return client


def read_all(client: socket.socket) -> bytes:
    answer = b""
    with suppress(ConnectionResetError):
        while data := client.recv(CHUNK):
            answer += data
    return answer


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network(
        {
            "api.example.com": [[PUBLIC]],
            "web.example.com": [[PUBLIC]],
            "rebinds.example.com": [[PUBLIC], ["169.254.169.254"]],
            "metadata.example.com": [["169.254.169.254"]],
            "mapped.example.com": [["::ffff:169.254.169.254"]],
            "loopback.example.com": [["127.0.0.1", "::1"]],
            "private.example.com": [["10.0.0.7"]],
            "db.example.com": [["10.0.0.7"]],
            "inside.example.com": [["fd00:ec2::254", "169.254.170.2", "127.0.0.1"]],
            "mixed.example.com": [["127.0.0.1", "10.0.0.7", PUBLIC]],
        }
    )
    yield network
    network.close()


LISTED = (
    "*.example.com,web.example.com:80,db.example.com/private,inside.example.com/private,"
    "[2606:4700::1111],9.9.9.9:853"
)


@contextmanager
def serve(
    network: Network,
    egress: str = LISTED,
    *,
    room: SharedCapacity | None = None,
    idle: float = PATIENCE,
) -> Iterator[Proxy]:
    refused: list[tuple[str, int, str]] = []
    proxy = EgressProxy(
        Egress.parse(egress),
        refused=lambda *each: refused.append(each),
        resolve=network.resolve,
        connect=network.connect,
        room=room or SharedCapacity(1000),
        idle=idle,
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    address = listener.getsockname()
    with proxy.serving(listener):
        yield Proxy(address, refused)


@pytest.fixture
def proxy(network: Network) -> Iterator[Proxy]:
    with serve(network) as proxy:
        yield proxy


def test_listed_host_is_reached_by_a_tunnel(network: Network, proxy: Proxy) -> None:
    with proxy.tunnel("api.example.com:443") as client:
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(10) == b""

    assert network.connected == [(PUBLIC, 443)]
    assert not proxy.refused


def test_bytes_that_come_with_the_request_are_passed_on(proxy: Proxy) -> None:
    with proxy.open() as client:
        client.sendall(b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\nhello")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"\r\n\r\nhello")


def test_much_data_goes_both_ways(proxy: Proxy) -> None:
    data = os.urandom(5_000_000)
    with proxy.tunnel("api.example.com:443") as client, ThreadPoolExecutor(1) as other:

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sent = other.submit(send)
        assert read_all(client) == data
        sent.result()


def test_plain_http_is_forwarded_for_one_request(network: Network, proxy: Proxy) -> None:
    answer = proxy.ask(
        b"GET http://web.example.com/a?b=c HTTP/1.1\r\nHost: other.example.com\r\n"
        b"Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"
        b"Connection: keep-alive\r\nAccept: */*\r\n\r\n"
    )

    assert answer.endswith(b"hi")
    assert b"".join(network.got) == (
        b"GET /a?b=c HTTP/1.1\r\nHost: web.example.com\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )


def test_literal_addresses_are_not_resolved(network: Network, proxy: Proxy) -> None:
    proxy.tunnel("9.9.9.9:853").close()
    proxy.tunnel("[2606:4700::1111]:443").close()

    assert network.resolved == []
    assert network.connected == [("9.9.9.9", 853), ("2606:4700::1111", 443)]


@pytest.mark.parametrize(
    "authority",
    [
        "evil.example.org:443",
        "api.example.com:22",
        "api.example.com.evil.example:443",
        "127.0.0.1:443",
        "2130706433:443",
        "0x7f.0.0.1:443",
        "[::1]:443",
        "[::ffff:9.9.9.9]:853",
        "169.254.169.254:443",
        "10.0.0.7:443",
    ],
)
def test_host_that_is_not_listed_is_refused_before_it_is_resolved(
    network: Network, proxy: Proxy, authority: str
) -> None:
    answer = proxy.connect(authority).decode()
    host = authority.rpartition(":")[0].strip("[]").encode()

    assert answer.startswith("HTTP/1.1 403 ")
    assert 'its setting "egress"' in answer
    assert not network.resolved
    assert not network.connected
    [(refused, _, reason)] = proxy.refused
    assert refused.encode() == host or ip_address(refused) == ip_address(host.decode())
    assert reason


def test_plain_http_to_another_host_is_refused(network: Network, proxy: Proxy) -> None:
    answer = proxy.ask(b"GET http://api.example.com/ HTTP/1.1\r\nHost: web.example.com\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"with port 443 only" in answer
    assert network.connected == []


@pytest.mark.parametrize(
    "host", ["metadata", "mapped", "loopback", "private", "inside"]
)  # each name resolves to the address of that kind
def test_listed_name_does_not_lead_inside(network: Network, proxy: Proxy, host: str) -> None:
    answer = proxy.connect(f"{host}.example.com:443")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert network.connected == []
    assert [each[0] for each in proxy.refused] == [f"{host}.example.com"]


def test_private_address_is_reached_where_the_list_says_so(network: Network, proxy: Proxy) -> None:
    proxy.tunnel("db.example.com:443").close()

    assert network.connected == [("10.0.0.7", 443)]


def test_of_several_addresses_those_inside_are_left_out(network: Network, proxy: Proxy) -> None:
    proxy.tunnel("mixed.example.com:443").close()

    assert network.connected == [(PUBLIC, 443)]


def test_name_that_changes_its_address_is_connected_where_it_was_checked(
    network: Network, proxy: Proxy
) -> None:
    """DNS rebinding: the first answer is public, each later one is the metadata service."""
    proxy.tunnel("rebinds.example.com:443").close()
    second = proxy.connect("rebinds.example.com:443")

    assert network.connected == [(PUBLIC, 443)]
    assert network.resolved == ["rebinds.example.com"] * 2
    assert second.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/1.1",
        b"GET https://api.example.com/ HTTP/1.1",
        b"GET http://web.example.com@evil.example/ HTTP/1.1",
        b"GET http://web.example.com:80:80/ HTTP/1.1",
        b"CONNECT api.example.com HTTP/1.1",
        b"CONNECT api.example.com:99999 HTTP/1.1",
        b"CONNECT api.example.com:443\tx HTTP/1.1",
        b"CONNECT [fe80::1%25lo]:443 HTTP/1.1",
        b"CONNECT [::::]:443 HTTP/1.1",
        b"CONNECT " + b"a" * 300 + b".example.com:443 HTTP/1.1",
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_nonsense_is_refused(network: Network, proxy: Proxy, request_line: bytes) -> None:
    assert proxy.ask(request_line + b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert not network.resolved
    assert not network.connected
    assert not proxy.refused


def test_name_that_does_not_exist_is_not_a_refusal(proxy: Proxy) -> None:
    answer = proxy.connect("missing.example.com:443")

    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"Name or service not known" in answer
    assert not proxy.refused


def test_large_upload_to_a_refused_host_gets_the_answer(proxy: Proxy) -> None:
    head = b"POST http://evil.example/ HTTP/1.1\r\nContent-Length: 300000\r\n\r\n"

    assert b"evil.example:80 is refused" in proxy.ask(head + b"x" * 300_000)


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


def test_relay_reaches_its_one_address(network: Network) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with (
        relay(listener, network._address),  # noqa: SLF001 — its server
        socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client,
    ):
        client.sendall(b"GET /1 HTTP/1.1\r\n\r\n")
        assert read_all(client).endswith(b"hi")


def test_relay_hangs_up_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    listener = socket.create_server(("127.0.0.1", 0))
    with (
        relay(listener, address),
        socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client,
    ):
        assert read_all(client) == b""


def test_programs_find_the_proxy_by_either_spelling() -> None:
    assert proxy_environment(8080) == {
        "HTTP_PROXY": "http://127.0.0.1:8080",
        "HTTPS_PROXY": "http://127.0.0.1:8080",
        "NO_PROXY": "127.0.0.1,localhost,::1",
        "http_proxy": "http://127.0.0.1:8080",
        "https_proxy": "http://127.0.0.1:8080",
        "no_proxy": "127.0.0.1,localhost,::1",
    }
