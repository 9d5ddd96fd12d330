"""A loopback proxy between an installer and the pool's package index.

The installer runs as the script's user. If the executor is not root, other scripts of the pool can
read the installer's environment, memory and files. So the installer never gets the credentials of
the index: it gets the URL of this proxy, which adds them. A proxy lives for one installation,
responds under one secret path, and serves only pages of packages that the pool allows and the files
that those pages link. Another script that reads the URL in that time can download packages that it
could also declare as its own dependencies; it cannot use the credentials for anything else.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from nextfire.adapters.packages.index_pages import rewrite_links
from nextfire.adapters.script_server import ScriptHandler, ScriptServer
from nextfire.dataclass import dataclass, field
from nextfire.domain.packages import LOOPBACK, PUBLIC_INDEX, check_index, normalized

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01"
)
_PASSED_ON = ("Content-Length", "Content-Type", "Content-Range", "Accept-Ranges")
_TIMEOUT = 60.0  # seconds until the index responds, and between two chunks of a response
_REQUEST_TIMEOUT = 10.0  # seconds until the installer's request must be complete
_CONNECTIONS = 128  # with a request, and without
_PIECE = 256 * 1024
_PAGE_BYTES = 64 * 1024 * 1024
_REDIRECTS = 5
_MAX_REFUSALS = 20
_PAGE = re.compile(r"simple/([A-Za-z0-9._-]{1,128})/?")
_FILE = re.compile(r"file/([0-9]{1,7})/[^/]+?(\.metadata)?")
_OWN_URL = re.compile(r"http://127\.0\.0\.1:[0-9]+/[\w-]+/(?:simple/|file/[0-9]+/)?")
_ANY_URL = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s/?#)`]+)[^\s)`]*")


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """A pool's package index. `credentials`: returns USER:PASSWORD; called per installation."""

    url: str = PUBLIC_INDEX
    credentials: Callable[[], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_index(self.url)


class IndexProxy:
    """The proxy of one installation to *index*. Serves the packages *allowed* (None: all).

    `url`: the index URL for the installer. `problem`: the last error of the real index. `refused`:
    requested packages that are not allowed.
    """

    def __init__(self, index: PackageIndex, allowed: frozenset[str] | None) -> None:
        from urllib3 import PoolManager  # noqa: PLC0415 - needed by workers only

        self._base = index.url.rstrip("/") + "/"
        self._allowed = allowed
        self._secret = None if index.credentials is None else index.credentials()
        self._http = PoolManager(timeout=_TIMEOUT, retries=False, maxsize=8)
        self._token = secrets.token_urlsafe(32)
        self._files: list[str] = []
        self._lock = threading.Lock()  # guards the files
        self._server = _Server(self)
        self._address = f"http://127.0.0.1:{self._server.server_port}/{self._token}/"
        self.url = f"{self._address}simple/"
        self.problem: str | None = None
        self.refused: dict[str, None] = {}

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve inside the `with` block."""
        self._server.start("package-index")
        try:
            yield
        finally:
            self._server.stop()
            self._http.clear()

    def redacted(self, text: str) -> str:
        """Redact the installer's output for a run record: keep only the hosts of URLs, and remove
        credentials.
        """
        text = _OWN_URL.sub("package index: ", text)
        text = _ANY_URL.sub(r"\1\2/…", text)
        for secret in self._secrets():
            text = text.replace(secret, "***")
        return text

    def answer(self, request: _Handler) -> None:
        """Answer a GET or HEAD request."""
        token, _, rest = request.path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            request.reply(HTTPStatus.NOT_FOUND)
        elif page := _PAGE.fullmatch(rest):
            self._answer_page(request, normalized(page[1]))
        elif file := _FILE.fullmatch(rest):
            self._answer_file(request, int(file[1]), file[2] or "")
        else:
            request.reply(HTTPStatus.NOT_FOUND)

    def _answer_page(self, request: _Handler, name: str) -> None:
        if self._allowed is not None and name not in self._allowed:
            if len(self.refused) < _MAX_REFUSALS:
                self.refused[name] = None
            request.reply(HTTPStatus.NOT_FOUND)
            return
        with self._response("GET", f"{self._base}{name}/", {"Accept": _ACCEPT}) as (answer, at):
            if answer is None or answer.status != HTTPStatus.OK:
                request.reply(self._failed(answer))
                return
            data = answer.read(_PAGE_BYTES + 1)
            kind = answer.headers.get("Content-Type", "text/html")
        try:
            if len(data) > _PAGE_BYTES:
                raise ValueError("the page is too large")
            data = rewrite_links(data, kind, at, self._move)
        except ValueError as error:
            self.problem = f"the page of {name!r} is not usable: {error}"
            request.reply(HTTPStatus.BAD_GATEWAY)
            return
        request.reply(HTTPStatus.OK, {"Content-Type": kind}, data)

    def _move(self, url: str) -> str:
        """The URL for the installer: a URL of this proxy if the index itself hosts the file."""
        if _origin(url) != _origin(self._base):
            return _with_https(url)
        with self._lock:
            self._files.append(url)
            number = len(self._files) - 1
        return f"{self._address}file/{number}/{urlsplit(url).path.rsplit('/', 1)[-1]}"

    def _answer_file(self, request: _Handler, number: int, suffix: str) -> None:
        if number >= len(self._files):
            request.reply(HTTPStatus.NOT_FOUND)
            return
        wanted = request.headers.get("Range")
        headers = {} if wanted is None else {"Range": wanted}
        parts = urlsplit(self._files[number])
        url = parts._replace(path=parts.path + suffix).geturl()
        with self._response(request.command, url, headers) as (answer, at):
            if answer is not None and answer.status in range(300, 400) and at != url:
                # The file is on another host, under a URL that is valid for this file only.
                request.reply(HTTPStatus.FOUND, {"Location": _with_https(at)})
            elif answer is None or answer.status not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
                request.reply(self._failed(answer))
            else:
                passed = {n: answer.headers[n] for n in _PASSED_ON if n in answer.headers}
                request.begin(HTTPStatus(answer.status), passed)
                for piece in answer.stream(_PIECE, decode_content=False):
                    request.wfile.write(piece)

    @contextmanager
    def _response(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> Iterator[tuple[BaseHTTPResponse | None, str]]:
        """The index's response for *url*, and its final URL. None if the index did not respond.

        Redirects within the index are followed. For a redirect to another host, returns the
        redirect response and its target.
        """
        answer, at = self._request(method, url, headers)
        try:
            yield answer, at
        finally:
            if answer is not None:
                answer.close()

    def _request(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> tuple[BaseHTTPResponse | None, str]:
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        sent = {**headers, "Accept-Encoding": "identity", "User-Agent": "nextfire"}
        if self._secret is not None:
            sent["Authorization"] = f"Basic {self._basic()}"
        try:
            for _ in range(_REDIRECTS):
                answer = self._http.request(
                    method, url, headers=sent, redirect=False, preload_content=False
                )
                to = answer.get_redirect_location()
                if not to:
                    return answer, url
                url = urljoin(url, to)
                if _origin(url) != _origin(self._base):
                    return answer, url  # never send the credentials to another host
                answer.close()
        except HTTPError as error:
            self.problem = f"no response ({type(error).__name__})"
        else:
            self.problem = "too many redirects"
        return None, url

    def _failed(self, answer: BaseHTTPResponse | None) -> HTTPStatus:
        """The status for the installer after a failed request. Sets `problem`."""
        if answer is None:
            return HTTPStatus.BAD_GATEWAY
        if answer.status == HTTPStatus.NOT_FOUND:
            return HTTPStatus.NOT_FOUND
        known = answer.status in {each.value for each in HTTPStatus}
        status = HTTPStatus(answer.status) if known else HTTPStatus.BAD_GATEWAY
        self.problem = f"it responded with {status.value} {status.phrase}"
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            self.problem += "; check the secret in the pool's packageIndexSecret"
        return HTTPStatus.BAD_GATEWAY if status < HTTPStatus.BAD_REQUEST else status

    def _basic(self) -> str:
        return base64.b64encode((self._secret or "").encode()).decode()

    def _secrets(self) -> list[str]:
        known = [self._token]
        if self._secret is not None:
            password = self._secret.partition(":")[2]
            known += [self._basic(), self._secret, password, quote(password, safe="")]
        return [each for each in known if each]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual


def _with_https(url: str) -> str:
    """*url* with https, except on loopback."""
    if urlsplit(url).hostname in LOOPBACK:
        return url
    return url.replace("http://", "https://", 1)


class _Server(ScriptServer):
    def __init__(self, proxy: IndexProxy) -> None:
        self.proxy = proxy
        self.room = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(_Handler, request_timeout=_REQUEST_TIMEOUT, max_pending=_CONNECTIONS)


class _Handler(ScriptHandler):
    server: _Server

    do_HEAD = ScriptHandler.do_GET  # noqa: N815 - the name that http.server requires

    def answer(self) -> None:
        if self.server.room.acquire(blocking=False):
            try:
                self.server.proxy.answer(self)
            finally:
                self.server.room.release()
