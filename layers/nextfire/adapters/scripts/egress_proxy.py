"""The HTTP proxy through which scripts of a pool reach the hosts in the pool's egress list.

The proxy checks the host name, resolves it, checks the address, and connects to that same address.
So a name that later resolves to another address (DNS rebinding) cannot bypass the check.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from ipaddress import IPv6Address, ip_address

from nextfire.adapters.scripts.bounded_server import CHUNK, IDLE, BoundedServer, SharedCapacity
from nextfire.dataclass import dataclass
from nextfire.domain.egress import PORTS, Address, Egress

_log = logging.getLogger(__name__)

MAX_HEAD = 16 * 1024
"""Maximum bytes of a request line and its headers."""
_HEAD_WITHIN = 10.0  # seconds, like the next three
_RESOLVED_WITHIN = 10.0
_CONNECTED_WITHIN = 10.0
_RESPONSE_TIMEOUT = 1.0
_ADDRESSES = 4
"""Maximum number of addresses tried per host."""
_RESOLVERS = 2
_REPORTED = 64
"""Maximum number of hosts per run whose refusal is reported."""

_CONNECT = re.compile(r"CONNECT (?P<authority>\S+) HTTP/1\.[01]")
_ABSOLUTE = re.compile(
    r"(?P<method>[A-Z]{1,20}) http://(?P<authority>[^\s/?#]+)(?P<path>[/?]\S*)?"
    r" (?P<version>HTTP/1\.[01])",
    re.IGNORECASE,
)
_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9._-]{1,253}))(?::(?P<port>[0-9]{1,5}))?"
)
_HOP_BY_HOP = {b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"host"}

Resolve = Callable[[str, int], Sequence[Address]]
"""Returns the addresses of a host and port; may block. Raises OSError if none is found."""
Connect = Callable[[Address, int], Awaitable[socket.socket]]
"""Returns a connected, non-blocking socket. Raises OSError."""
Refused = Callable[[str, int, str], None]
"""Called in the proxy's thread with host, port and reason of a refusal."""


def proxy_environment(port: int) -> dict[str, str]:
    """Environment variables that point programs to the proxy on loopback port *port*."""
    proxy, none = f"http://127.0.0.1:{port}", "127.0.0.1,localhost,::1"
    values = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": none}
    return values | {name.lower(): value for name, value in values.items()}


@contextmanager
def relay(listener: socket.socket, address: tuple[str, int]) -> Iterator[None]:
    """Inside the `with` block, relay each connection on *listener* to *address*.

    Args:
        listener: Closed at the end.
        address: An IP address and a port.

    Raises:
        OSError: The process is out of file descriptors or threads.
    """
    target = ip_address(address[0])

    async def handle(server: BoundedServer, client: socket.socket) -> None:
        with closing(await _connect(target, address[1])) as upstream:
            await server.exchange(client, upstream)

    with BoundedServer(listener, handle).serving():
        yield


class EgressProxy:
    """The proxy of one run. Supports CONNECT, and plain HTTP with absolute URLs."""

    def __init__(
        self,
        egress: Egress,
        *,
        refused: Refused,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
        room: SharedCapacity | None = None,
        idle: float = IDLE,
    ) -> None:
        """Build.

        Args:
            egress: The hosts that the run's script may reach.
            refused: Called once for each refused host, for at most 64 hosts.
            resolve: Resolves host names; None for the system resolver.
            connect: Opens connections; None for TCP.
            room: Capacity shared with other runs; None for the process-wide capacity.
            idle: Idle timeout of a connection in seconds.
        """
        self._egress = egress
        self._refused = refused
        self._resolve = resolve or _resolve
        self._connect = connect or _connect
        self._room = room
        self._idle = idle
        self._reported: set[str] = set()
        self._resolvers: ThreadPoolExecutor | None = None

    @contextmanager
    def serving(self, listener: socket.socket) -> Iterator[None]:
        """Serve on *listener* inside the `with` block; close it at the end.

        Raises:
            OSError: The process is out of file descriptors or threads.
        """
        options = {"room": self._room} if self._room else {}
        server = BoundedServer(listener, self._handle, idle=self._idle, **options)
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="egress-resolver")
        try:
            with server.serving():
                yield
        finally:
            self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def _handle(self, server: BoundedServer, client: socket.socket) -> None:
        try:
            async with asyncio.timeout(_HEAD_WITHIN):
                head, rest = await _read_head(client)
            request = _parse(head)
            upstream = await self._reach(request)
        except TimeoutError:
            return
        except _RefusalError as refusal:
            await _answer(client, refusal)
            return
        with closing(upstream):
            loop = asyncio.get_running_loop()
            if not request.forwarded:
                await loop.sock_sendall(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
            await loop.sock_sendall(upstream, request.forwarded + rest)
            await server.exchange(client, upstream)

    async def _reach(self, request: _Request) -> socket.socket:
        host, port = request.host, request.port
        decision = self._egress.allows(host, port)
        if not decision.allowed:
            raise self._refuse(host, port, decision.reason)
        addresses = await self._addresses(host, port)
        reason = ""
        permitted = []
        for address in addresses:
            decision = self._egress.allows_address(host, port, address)
            if decision.allowed:
                permitted.append(address)
            else:
                reason = decision.reason
        if not permitted:
            raise self._refuse(host, port, reason)
        problem = ""
        for address in permitted[:_ADDRESSES]:
            try:
                async with asyncio.timeout(_CONNECTED_WITHIN):
                    return await self._connect(address, port)
            except (OSError, TimeoutError) as error:
                problem = f"{address}: {_words(error)}"
        raise _RefusalError(502, "Bad Gateway", f"cannot connect to {host}:{port} ({problem}).")

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        with suppress(ValueError):
            return [ip_address(host)]
        if not self._resolvers:
            raise RuntimeError("not serving")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_RESOLVED_WITHIN):
                found = await loop.run_in_executor(self._resolvers, self._resolve, host, port)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise _RefusalError(
                502, "Bad Gateway", f"cannot resolve {host}: {_words(error)}."
            ) from error
        if not found:
            raise _RefusalError(502, "Bad Gateway", f"{host} has no address.")
        return found

    def _refuse(self, host: str, port: int, reason: str) -> _RefusalError:
        if host not in self._reported and len(self._reported) < _REPORTED:
            self._reported.add(host)
            last = len(self._reported) == _REPORTED
            more = "; refusals of further hosts are not reported" if last else ""
            try:
                self._refused(host, port, reason + more)
            except Exception:  # noqa: BLE001 — the script still gets its response
                _log.exception("cannot report a refused host")
        return _RefusalError(
            403,
            "Refused by the egress setting of the pool",
            f"{host}:{port} is refused: {reason}. Scripts of this pool may reach only the hosts of "
            'its setting "egress", which the operator of the stack can change.',
        )


@dataclass(frozen=True, slots=True)
class _Request:
    """`forwarded`: the request head to send to the server; empty for CONNECT."""

    host: str
    port: int
    forwarded: bytes


class _RefusalError(Exception):
    """The request is rejected with an HTTP status and a sentence."""

    def __init__(self, status: int, phrase: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.phrase, self.sentence = status, phrase, sentence


async def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Read the head of a request, without its empty line, and the bytes received after it."""
    loop = asyncio.get_running_loop()
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) >= MAX_HEAD:
            raise _RefusalError(
                431, "Request Header Fields Too Large", f"Headers exceed {MAX_HEAD} bytes."
            )
        more = await loop.sock_recv(client, MAX_HEAD - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _parse(head: bytes) -> _Request:
    line, *headers = head.split(b"\r\n")
    text = line.decode("latin-1")
    if match := _CONNECT.fullmatch(text):
        host, port = _authority(match["authority"], 0)
        return _Request(host, port, b"")
    if match := _ABSOLUTE.fullmatch(text):
        host, port = _authority(match["authority"], 80)
        path = match["path"] or "/"
        path = f"/{path}" if path.startswith("?") else path
        kept = [each for each in headers if _name(each) not in _HOP_BY_HOP]
        lines = [
            f"{match['method']} {path} {match['version']}".encode("latin-1"),
            f"Host: {match['authority']}".encode("latin-1"),
            *kept,
            # A second request on this connection could be for another host.
            b"Connection: close",
        ]
        return _Request(host, port, b"\r\n".join(lines) + b"\r\n\r\n")
    raise _RefusalError(
        400,
        "Bad Request",
        "This is an HTTP proxy: send CONNECT host:port, or a request with an absolute http:// URL.",
    )


def _name(header: bytes) -> bytes:
    return header.partition(b":")[0].strip().lower()


def _authority(text: str, default: int) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else default
    if not match or port not in PORTS:
        raise _RefusalError(
            400, "Bad Request", "The host must be a name or an IP address, with a port for CONNECT."
        )
    if match["v6"] is None:
        return match["host"].lower(), port
    try:
        return str(IPv6Address(match["v6"])), port
    except ValueError as error:
        raise _RefusalError(400, "Bad Request", "The host is not an IPv6 address.") from error


async def _answer(client: socket.socket, refusal: _RefusalError) -> None:
    body = f"nextfire: {refusal.sentence}\n".encode()
    headers: Mapping[str, object] = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": len(body),
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {refusal.status} {refusal.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    loop = asyncio.get_running_loop()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_RESPONSE_TIMEOUT):
            await loop.sock_sendall(client, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            client.shutdown(socket.SHUT_WR)
            # If the connection were closed now, a client that still sends would lose the response.
            left = 16 * CHUNK
            while left > 0 and (data := await loop.sock_recv(client, CHUNK)):
                left -= len(data)


def _resolve(host: str, port: int) -> Sequence[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(each[4][0]) for each in found]


async def _connect(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A literal address: asyncio makes no DNS lookup.
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except BaseException:
        sock.close()
        raise
    return sock


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
