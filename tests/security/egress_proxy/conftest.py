"""An egress proxy, and a network whose names lead where a test says."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from ipaddress import ip_address

import pytest

from nextfire.adapters.scripts.bounded_server import CHUNK, SharedCapacity
from nextfire.adapters.scripts.egress_proxy import EgressProxy
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
