"""A pool's job role, lent to scripts by the protocol that every AWS SDK knows from ECS.

The SDK in the script asks a URL of this process for credentials, with a token from its environment,
and asks again before they expire. So a script holds no credentials but those of its role, and a
long one does not outlive them.
"""

from __future__ import annotations

import hmac
import itertools
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from nextfire.adapters.aws_errors import error_code, refused, translated
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import isoformat
from nextfire.domain.masking import Masker
from nextfire.domain.ports import Clock

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

SESSION_TAGS = ("pool", "tenant", "job")
"""Tags of each session in a job role; the executors' policies allow no others."""
_LIFE = timedelta(hours=1)  # the most that STS grants to who acts in a role already
_RENEWED = timedelta(minutes=15)  # the SDKs begin to ask anew when this is left, or less
_JOBS = 256
_UNREAD = 32
"""Connections whose request has not come yet; one more, and the oldest is hung up on."""
_PATIENCE = 5  # s, for a request to come
_OF_ONE_LOAN = 8  # requests at a time
_POLL = 0.1  # s, after which `close` and the end of patience are seen
_NO_NAME = re.compile(r"[^A-Za-z0-9_+=,.@-]")


@dataclass(frozen=True, slots=True)
class _Credentials:
    """`document`: as ECS's endpoint would tell them; `secrets`: what in it must not be recorded."""

    document: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    expires_at: datetime


@dataclass(slots=True)
class _Session:
    """A job's share in the role. Whoever renews it holds `turn`."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    latest: _Credentials | None = None


@dataclass(frozen=True, slots=True)
class _Loan:
    job: JobKey
    masker: Masker
    token: str = field(repr=False)
    room: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_OF_ONE_LOAN)
    )


class StsJobRole:
    """`JobRole` by AssumeRole of *role_arn*, with the session tags `SESSION_TAGS`.

    *environment* is lent too: what a script needs to find AWS beside credentials, above all its
    region. The server listens on the loopback address from the first loan until `close`.
    """

    def __init__(
        self,
        client: STSClient,
        *,
        role_arn: str,
        pool: str,
        environment: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._client = client
        self._role_arn = role_arn
        self._pool = pool
        self._environment = dict(environment)
        self._clock = clock
        self._sessions: dict[JobKey, _Session] = {}
        self._loans: dict[str, _Loan] = {}
        self._numbers = itertools.count(1)
        self._server: _Server | None = None
        self._lock = threading.Lock()  # of the sessions' order, and of the server's start and end

    @contextmanager
    def lent(self, job: JobKey, masker: Masker) -> Iterator[Mapping[str, str]]:
        self._credentials(job)
        address = self._address()
        path = f"/{next(self._numbers)}"
        loan = _Loan(job, masker, secrets.token_urlsafe(32))
        masker.add(loan.token)
        self._loans[path] = loan
        try:
            yield {
                **self._environment,
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": address + path,
                "AWS_CONTAINER_AUTHORIZATION_TOKEN": loan.token,
            }
        finally:
            del self._loans[path]

    def close(self) -> None:
        """Lend no more."""
        with self._lock:
            if self._server is not None:
                self._server.shutdown()
                self._server.server_close()
                self._server = None

    def answer(self, path: str, token: str) -> bytes | None:
        """What the script asking for *path* with *token* is told; None if it is not a borrower.

        Raises:
            InvalidInputError: The executor may no longer act in the role.
            UnavailableError: There are no valid credentials, and none to be had at present; or the
                script asks too often at a time.
        """
        loan = self._loans.get(path)
        # Compared also where there is no loan, so that the time taken says nothing.
        expected = secrets.token_urlsafe(32) if loan is None else loan.token
        if not hmac.compare_digest(token.encode(), expected.encode()) or loan is None:
            return None
        if not loan.room.acquire(blocking=False):
            raise UnavailableError("The script asks too often at a time.")
        try:
            credentials = self._credentials(loan.job)
            loan.masker.add(*credentials.secrets)  # before the script can print them
            return credentials.document
        finally:
            loan.room.release()

    def _credentials(self, job: JobKey) -> _Credentials:
        """The job's credentials: the latest, or new ones where these are near their end."""
        with self._lock:
            session = self._sessions.pop(job, None) or _Session()
            self._sessions[job] = session
            if len(self._sessions) > _JOBS:
                del self._sessions[next(iter(self._sessions))]
        with session.turn:
            latest, now = session.latest, self._clock.now()
            if latest is None or latest.expires_at - now < _RENEWED:
                try:
                    latest = session.latest = self._assume(job)
                except UnavailableError:
                    if latest is None or latest.expires_at <= now:
                        raise
            return latest

    def _assume(self, job: JobKey) -> _Credentials:
        try:
            with translated("assume job role"):
                given = self._client.assume_role(
                    RoleArn=self._role_arn,
                    RoleSessionName=_NO_NAME.sub("-", f"{job.job_id[:51]}@{job.tenant[:12]}"),
                    DurationSeconds=int(_LIFE.total_seconds()),
                    Tags=[
                        {"Key": "pool", "Value": self._pool},
                        {"Key": "tenant", "Value": job.tenant},
                        {"Key": "job", "Value": job.job_id},
                    ],
                    TransitiveTagKeys=[*SESSION_TAGS],
                )["Credentials"]
        except refused() as error:
            if error_code(error) in {"AccessDenied", "AccessDeniedException"}:
                raise InvalidInputError(
                    "jobRole",
                    self._role_arn,
                    "the pool's executor may not act in it",
                    "Its trust policy must allow sts:AssumeRole and sts:TagSession to the "
                    f"executor's role, with the session tags {', '.join(SESSION_TAGS)}.",
                ) from error
            raise
        document = {
            "AccessKeyId": given["AccessKeyId"],
            "SecretAccessKey": given["SecretAccessKey"],
            "Token": given["SessionToken"],
            "Expiration": isoformat(given["Expiration"]),
        }
        secret = (document["AccessKeyId"], document["SecretAccessKey"], document["Token"])
        return _Credentials(json.dumps(document).encode(), secret, given["Expiration"])

    def _address(self) -> str:
        with self._lock:
            if self._server is None:
                self._server = _Server(self)
                threading.Thread(
                    target=self._server.serve_forever,
                    args=(_POLL,),
                    name="job-role",
                    daemon=True,
                ).start()
            return f"http://127.0.0.1:{self._server.server_port}"


class _Server(ThreadingHTTPServer):
    """Serves scripts, which are not trusted to leave it alone. Whoever is slow to ask makes room
    for others, and is hung up on before long; who has asked holds a place of its own loan.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, role: StsJobRole) -> None:
        self.role = role
        self._unread: dict[Any, float] = {}  # until when each may be, the oldest first
        self._lock = threading.Lock()  # held while hanging up, so that it is still theirs
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._unread[request] = time.monotonic() + _PATIENCE
            if len(self._unread) > _UNREAD:
                self._hang_up(next(iter(self._unread)))
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called every `_POLL`, and after each connection."""
        now = time.monotonic()
        with self._lock:
            for request in [each for each, until in self._unread.items() if until <= now]:
                self._hang_up(request)

    def has_come(self, request: Any) -> None:
        """All of what *request* asks has been read."""
        with self._lock:
            self._unread.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        self.has_come(request)
        super().shutdown_request(request)

    def _hang_up(self, request: Any) -> None:
        """End the reading of *request*, whose thread then ends."""
        del self._unread[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A script that hangs up, or sends nonsense, is nothing to tell."""

    def server_bind(self) -> None:
        """Bind, without the look-up of a host name that HTTPServer makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.socket.getsockname()[1])


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    server_version = "nextfire"
    sys_version = ""
    server: _Server

    def do_GET(self) -> None:
        self.server.has_come(self.request)
        try:
            document = self.server.role.answer(self.path, self.headers.get("Authorization", ""))
        except Exception:  # noqa: BLE001 - what is wrong is told at the next loan
            self._reply(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        if document is None:
            self._reply(HTTPStatus.NOT_FOUND)
        else:
            self._reply(HTTPStatus.OK, document)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a path names an execution, and nobody asked."""

    def _reply(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
