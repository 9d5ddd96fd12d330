"""Sends one HTTP/1.1 request over its own connection, to an allowed address only.

No proxies, no redirects, no reuse of connections, no compression. The address is checked after the
name was resolved, and again on the connected socket, so it does not matter what the name resolves
to a moment later.

The request is made in its own thread. The caller's thread waits, asks whether to continue, and
shuts the socket down at the deadline. So a name server that hangs, or a server that sends a byte a
second, cannot delay it.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from nextfire.domain.errors import InvalidInputError
from nextfire.targets.http.addresses import (
    DEFAULT_PORTS,
    NEUTRAL,
    AddressRules,
    ForbiddenAddressError,
    check_address,
    check_url,
)
from nextfire.targets.http.messages import (
    CallFailedError,
    Failure,
    Request,
    Response,
    Timings,
    check_headers,
)
from nextfire.targets.http.tls import TlsSettings, context_of
from nextfire.targets.http.wire import Connection, MalformedResponseError, Wire

BODY_CAP = 64 * 1024
"""Default of the bytes of a response body that are kept; the rest is not read."""
_ASK_EVERY = 0.25  # seconds
_ENDS_WITHIN = 1.0  # seconds; then a thread that hangs in name resolution is left behind
_MAX_ADDRESSES = 4
_MAX_THREADS = 256
_threads = threading.BoundedSemaphore(_MAX_THREADS)

Resolve = Callable[[str, int], list[tuple[Any, ...]]]
"""Returns the addresses of a host and port as `socket.getaddrinfo`."""


def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    """Resolve by the system's resolver."""
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class Transport:
    """Sends requests to the addresses that *rules* allow. Thread-safe."""

    def __init__(self, rules: AddressRules, *, resolve: Resolve = resolve) -> None:
        self.rules = rules
        self._resolve = resolve

    def send(
        self,
        request: Request,
        *,
        tls: TlsSettings | None = None,
        timeout: float,
        ask: Callable[[], bool],
        cap: int = BODY_CAP,
    ) -> Response:
        """Send *request* and return the response.

        Args:
            request: The request.
            tls: TLS settings; None: the public certificates.
            timeout: Seconds for everything together.
            ask: Called every 0.25 s in this thread; True ends the call.
            cap: Maximum bytes of the body.

        Raises:
            CallFailedError: The call got no response.
            InvalidInputError: A header is invalid. Nothing was sent.
            Exception: Whatever *ask* raised.
        """
        check_headers(request.headers)
        call = _Call(request, tls, self.rules, self._resolve, time.monotonic() + timeout, cap)
        while not _threads.acquire(timeout=max(min(_ASK_EVERY, call.left()), 0)):
            if ask():
                raise call.failed(Failure.STOPPED, "the call was stopped")
            if call.left() <= 0:
                raise call.failed(Failure.BUSY, "too many calls wait for name servers")
        try:
            threading.Thread(target=call.run, name="call", daemon=True).start()
        except RuntimeError:  # no more threads
            _threads.release()
            raise call.failed(Failure.BUSY, "the executor has no thread for the call") from None
        try:
            while not call.done.wait(min(_ASK_EVERY, call.left())):
                if ask():
                    raise call.abandoned(Failure.STOPPED, "the call was stopped")
                if call.left() <= 0:
                    raise call.abandoned(
                        Failure.TIMEOUT, f"no response within {round(timeout, 1):g} s"
                    )
        finally:
            call.hang_up()
            call.done.wait(_ENDS_WITHIN)
        return call.result()


class _Call:
    """One call, made by `run` in its own thread."""

    def __init__(
        self,
        request: Request,
        tls: TlsSettings | None,
        rules: AddressRules,
        resolve: Resolve,
        until: float,
        cap: int,
    ) -> None:
        self._request, self._tls, self._rules, self._resolve = request, tls, rules, resolve
        self._until, self._cap = until, cap
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._hung_up = False
        self._response: Response | None = None
        self._error: BaseException | None = None
        self.done = threading.Event()
        self.timings = Timings()
        self.address: str | None = None
        self.sent = False

    def left(self) -> float:
        """Seconds until the deadline."""
        return self._until - time.monotonic()

    def failed(self, problem: Failure, text: str) -> CallFailedError:
        timings = replace(self.timings, total=time.monotonic() - self._began)
        return CallFailedError(problem, text, sent=self.sent, address=self.address, timings=timings)

    def abandoned(self, problem: Failure, text: str) -> CallFailedError:
        """End the connection, and only then say whether anything was sent."""
        self.hang_up()
        return self.failed(problem, text)

    def hang_up(self) -> None:
        """End the connection, from another thread."""
        with self._lock:
            self._hung_up = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def result(self) -> Response:
        if self._response is not None:
            return self._response
        raise self._error or self.failed(Failure.TIMEOUT, "no response in time")

    def run(self) -> None:
        """Make the call."""
        try:
            self._response = self._exchange()
        except CallFailedError as error:
            self._error = error
        except TimeoutError:
            self._error = self.failed(Failure.TIMEOUT, "no response in time")
        except ConnectionError as error:
            self._error = self.failed(Failure.CLOSED, _text(error))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._error = self.failed(Failure.PROTOCOL, _text(error))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._error = error
        finally:
            _threads.release()
            self.done.set()

    def _exchange(self) -> Response:
        try:
            parts = check_url(self._request.url, self._rules)
        except InvalidInputError as error:
            raise self.failed(Failure.FORBIDDEN, error.problem) from error
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
        with self._connected(host, port) as plain, self._secured(plain, parts.scheme, host) as wire:
            target = parts.path or "/"
            target += f"?{parts.query}" if parts.query else ""
            named = 0 if port == DEFAULT_PORTS[parts.scheme] else port  # as signatures have it
            return self._speak(wire, host, named, target)

    @contextmanager
    def _connected(self, host: str, port: int) -> Iterator[socket.socket]:
        addresses = self._resolved(host, port)
        began, refusal = time.monotonic(), ""
        addresses = addresses[:_MAX_ADDRESSES]
        for others, (family, sockaddr) in zip(
            reversed(range(len(addresses))), addresses, strict=True
        ):
            try:
                connection = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:  # this machine may have no IPv6
                refusal = f"cannot connect: {_text(error)}"
                continue
            with connection:
                self._watch(connection)
                try:
                    # An address that does not answer leaves time for the others.
                    connection.settimeout(self._patience() / (others + 1))
                    connection.connect(sockaddr)
                    # A proxy of the machine, or a rule of its kernel, may have led elsewhere.
                    self._check(connection.getpeername()[0])
                except TimeoutError:
                    refusal = "the connection timed out"
                    continue
                except OSError as error:
                    refusal = f"cannot connect: {_text(error)}"
                    continue
                self.address = f"{sockaddr[0]}:{port}"
                self.timings = replace(self.timings, connect=time.monotonic() - began)
                yield connection
                return
        raise self.failed(Failure.CONNECT, refusal or "cannot connect: no address")

    def _resolved(self, host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
        """The socket addresses of *host*, if all of them are allowed."""
        began = time.monotonic()
        try:
            found = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise self.failed(Failure.NAME, "the host name was not found") from error
        self.timings = replace(self.timings, dns=time.monotonic() - began)
        addresses: list[tuple[int, tuple[Any, ...]]] = []
        for family, _, _, _, sockaddr in found:
            self._check(sockaddr[0])
            if (family, sockaddr) not in addresses:
                addresses.append((family, sockaddr))
        return addresses

    def _check(self, address: str) -> None:
        try:
            check_address(ip_address(address), self._rules)
        except (ForbiddenAddressError, ValueError) as error:
            self.address = None
            raise self.failed(Failure.FORBIDDEN, NEUTRAL) from error

    @contextmanager
    def _secured(self, plain: socket.socket, scheme: str, host: str) -> Iterator[socket.socket]:
        if scheme == "http":
            yield plain
            return
        began = time.monotonic()
        try:
            context = context_of(self._tls)
            plain.settimeout(self._patience())
            # The handshake is a separate step: `plain` has no descriptor after `wrap_socket`.
            secured = context.wrap_socket(
                plain, server_hostname=host, do_handshake_on_connect=False
            )
        except TimeoutError:
            raise
        except (ssl.SSLError, OSError, ValueError) as error:
            raise self.failed(Failure.TLS, f"TLS failed: {_text(error)}") from error
        with secured:
            self._watch(secured)
            try:
                secured.settimeout(self._patience())
                secured.do_handshake()
            except TimeoutError:
                raise
            except (OSError, ValueError) as error:
                ended = isinstance(error, ConnectionError | ssl.SSLEOFError)
                # A balancer without servers. With TLS settings of the job, they may be the cause.
                problem = Failure.CONNECT if ended and self._tls is None else Failure.TLS
                raise self.failed(problem, f"TLS failed: {_text(error)}") from error
            self.timings = replace(self.timings, tls=time.monotonic() - began)
            yield secured

    def _speak(self, connection: socket.socket, host: str, port: int, target: str) -> Response:
        began = time.monotonic()
        client = Connection(host, port, Wire(connection, self._patience, self._cap))
        client.putrequest(self._request.method, target, skip_accept_encoding=True)
        client.putheader("Accept-Encoding", "identity")
        client.putheader("Connection", "close")
        for name, value in self._request.headers.items():
            client.putheader(name, value)
        if self._request.body or self._request.method in {"POST", "PUT", "PATCH"}:
            client.putheader("Content-Length", str(len(self._request.body)))
        with self._lock:
            if self._hung_up:
                raise TimeoutError
            self.sent = True
        # It may have answered without reading the whole body; TLS has its own errors for this.
        with suppress(ConnectionError, ssl.SSLError):
            client.endheaders(self._request.body or None)
        answer = client.getresponse()
        self.timings = replace(self.timings, first_byte=time.monotonic() - began)
        body = answer.read(self._cap + 1)
        if answer.length and len(body) <= self._cap:
            raise MalformedResponseError("the body ended early")
        assert self.address is not None  # noqa: S101 - for the type checker
        return Response(
            answer.status,
            tuple(answer.getheaders()),
            body[: self._cap],
            len(body) > self._cap,
            self.address,
            replace(self.timings, total=time.monotonic() - self._began),
        )

    def _watch(self, connection: socket.socket) -> None:
        """Let `hang_up` end *connection* from now on."""
        with self._lock:
            self._socket = connection
            if self._hung_up:
                raise TimeoutError

    def _patience(self) -> float:
        """Seconds for the next operation of the socket.

        Raises:
            TimeoutError: The deadline has passed.
        """
        if (left := self.left()) <= 0:
            raise TimeoutError
        return left


def _text(error: BaseException) -> str:
    """A short text about *error*, which has no part of the request."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "protocol error").replace("_", " ").lower()
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, http.client.RemoteDisconnected | ConnectionError):
        return "the connection was closed"
    if isinstance(error, MalformedResponseError):
        return f"the response is not valid HTTP: {error}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"the response is not valid HTTP ({type(error).__name__})"
