"""HTTP with persistent connections, on urllib3."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import RemoteDisconnected
from ssl import SSLCertVerificationError
from typing import Any
from urllib.parse import unquote, urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import make_headers
from urllib3.util.ssl_match_hostname import CertificateError

from nextfire.adapters.aws_errors import UnansweredError
from nextfire.adapters.lean.environment import proxy_for, tls_context

_POOL_SIZE = 32
_UNTRUSTED = (CertificateError, SSLCertVerificationError)


class LostError(UnansweredError):
    """The connection failed, or ended before the whole response was read."""


class TimedOutError(UnansweredError):
    """Connecting or reading the response timed out."""


class UntrustedError(UnansweredError):
    """The server's certificate is invalid. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class _RequestState(threading.local):
    """State of the request that this thread sends. `fresh`: it needs a new connection. `reused`: it
    was sent on a connection that had been used before.
    """

    fresh = False
    reused = False


_current = _RequestState()


class _TrackingConnection:
    def request(self, *args: Any, **options: Any) -> None:
        _current.reused = getattr(self, "proven", False)
        super().request(*args, **options)  # type: ignore[misc]

    def getresponse(self) -> Any:
        response = super().getresponse()  # type: ignore[misc]
        self.proven = True
        return response

    def close(self) -> None:
        self.proven = False
        super().close()  # type: ignore[misc]


class _PlainConnection(_TrackingConnection, HTTPConnection):
    pass


class _TlsConnection(_TrackingConnection, HTTPSConnection):
    pass


class _FreshConnectionPool:
    def _get_conn(self, timeout: float | None = None) -> Any:
        if _current.fresh:
            return self._new_conn()  # type: ignore[attr-defined]
        return super()._get_conn(timeout)  # type: ignore[misc]


class _PlainPool(_FreshConnectionPool, HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(_FreshConnectionPool, HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class Transport:
    """Sends POST requests to *endpoint*. Thread-safe; child processes do not inherit the sockets.

    *connect* and *read* are timeouts in seconds: for the connection, and for each wait for data.
    """

    def __init__(self, endpoint: str, *, connect: float, read: float) -> None:
        self._pool = _pool_of(endpoint)
        # For plain HTTP a proxy gets the absolute URL; for TLS it opens a tunnel.
        plain = endpoint.startswith("http://") and proxy_for(endpoint) is not None
        self._url = f"{endpoint}/" if plain else "/"
        self._timeout = Timeout(connect=connect, read=read)

    def send(self, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a request and return its response, regardless of the status.

        Servers close connections after some idle time. If that happens to a request on a reused
        connection, before any byte of the response, it is resent immediately on a new connection.

        Raises:
            LostError: See its docstring.
            TimedOutError: See its docstring.
            UntrustedError: See its docstring.
        """
        try:
            return self._send(headers, body)
        except ProtocolError as error:
            if not (_current.reused and _is_closed_by_server(error)):
                raise LostError(_text(error)) from error
        except HTTPError as error:
            raise _translate(error) from error
        _current.fresh = True
        try:
            return self._send(headers, body)
        except HTTPError as error:
            raise _translate(error) from error
        finally:
            _current.fresh = False

    def _send(self, headers: Mapping[str, str], body: bytes) -> Response:
        _current.reused = False
        answer = self._pool.urlopen(
            "POST",
            self._url,
            body=body,
            headers=headers,
            retries=False,
            redirect=False,
            assert_same_host=False,
            timeout=self._timeout,
            decode_content=False,
        )
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status, named, answer.data)


def _pool_of(endpoint: str) -> HTTPConnectionPool:
    parts = urlsplit(endpoint)
    host, tls = str(parts.hostname), parts.scheme == "https"
    options: dict[str, Any] = {"maxsize": _POOL_SIZE}
    if tls:
        options["ssl_context"] = tls_context()
    proxy = proxy_for(endpoint)
    if proxy is None:
        return (_TlsPool if tls else _PlainPool)(host, parts.port, **options)
    manager = ProxyManager(proxy, proxy_headers=_proxy_headers(proxy), **options)
    manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}
    return manager.connection_from_host(host, parts.port, parts.scheme)


def _proxy_headers(proxy: str) -> dict[str, str]:
    """Headers that authenticate with the user and password of the URL *proxy*."""
    parts = urlsplit(proxy)
    if not parts.username or not parts.password:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password)}"
    return dict(make_headers(proxy_basic_auth=user))


def _is_closed_by_server(error: ProtocolError) -> bool:
    cause = error.args[1] if len(error.args) > 1 else None
    return isinstance(cause, RemoteDisconnected | ConnectionResetError | BrokenPipeError)


def _translate(error: HTTPError) -> UnansweredError:
    if isinstance(error, SSLError) and isinstance(error.args[0], _UNTRUSTED):
        return UntrustedError(
            f"Invalid certificate: {error}. Check the endpoint's host name and this machine's "
            "clock. Trust a private certificate authority with AWS_CA_BUNDLE, for example "
            "AWS_CA_BUNDLE=/etc/ssl/private-ca.pem"
        )
    # urllib3 classifies a refused connection as a timeout.
    timed_out = isinstance(error, ReadTimeoutError | ConnectTimeoutError)
    timed_out = timed_out and not isinstance(error, NewConnectionError)
    return (TimedOutError if timed_out else LostError)(_text(error))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
