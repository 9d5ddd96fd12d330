"""Provides credentials of a pool's job role to scripts, by the ECS container credentials protocol.

All AWS SDKs support the protocol. The SDK in the script requests credentials from a URL of this
process with a token from its environment, and requests new ones before they expire. So a script has
only the credentials of its role, and long scripts always have valid ones.
"""

from __future__ import annotations

import hmac
import itertools
import json
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

from nextfire.adapters.aws.errors import error_code, refused, translated
from nextfire.adapters.script_server import ScriptHandler, ScriptServer
from nextfire.dataclass import dataclass, field
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.instants import isoformat
from nextfire.domain.masking import Masker
from nextfire.domain.ports.clocks import Clock
from nextfire.targets.role import Credentials

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

SESSION_TAGS = ("pool", "tenant", "job")
"""Tags of each session of a job role. The executors' policies allow no others."""
_LIFE = timedelta(hours=1)  # the maximum of STS for role chaining
_RENEWED = timedelta(minutes=15)  # SDKs request new credentials when this or less is left
_JOBS = 256
_TURN_SECONDS = 3.0
"""How long a run waits for the request of another run of its job: less than its lease."""
_MAX_PENDING = 32
_REQUEST_TIMEOUT = 5  # seconds until a request must be complete
_MAX_PER_LOAN = 8  # concurrent requests of one loan
_NOT_IN_SESSION_NAME = re.compile(r"[^A-Za-z0-9_+=,.@-]")
_NOT_IN_TAG = re.compile(r"[^\w .:/+@-]|(?<=\A[aA][wW][sS]):")
"""What the value of a session tag cannot have, `=`, which escapes it, and the reserved `aws:`."""


def tag_of(tenant: str) -> str:
    """The value of the session tag `tenant`: its name, in which characters that STS does not allow
    are `=` and two hexadecimal digits per byte of UTF-8: ``auth0=7Cabc`` for ``auth0|abc``. No two
    tenants have the same, so policies can rely on it.
    """
    return _NOT_IN_TAG.sub(
        lambda found: "".join(f"={byte:02X}" for byte in found[0].encode()), tenant
    )


@dataclass(frozen=True, slots=True)
class _Credentials:
    """`document`: the response body, in the format of ECS. `secrets`: values in it to mask."""

    document: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    expires_at: datetime


@dataclass(slots=True)
class _Session:
    """The cached session of a job. The thread that renews it holds `turn`."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    latest: _Credentials | None = None


@dataclass(frozen=True, slots=True)
class _Loan:
    job: JobKey
    masker: Masker
    token: str = field(repr=False)
    room: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_MAX_PER_LOAN)
    )


class StsJobRole:
    """`JobRole` by AssumeRole of *role_arn*, with the session tags `SESSION_TAGS`.

    Each loan also contains *environment*: variables that a script needs to call AWS in addition to
    credentials, such as the region. The server listens on loopback from the first loan until
    `close`.
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
        self._url = ""
        self._lock = threading.Lock()  # guards the order of sessions, and server start and stop

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

    def credentials(self, job: JobKey, masker: Masker) -> Credentials:
        """Return the credentials for *job*, for a call that the executor makes with the role.

        Raises:
            InvalidInputError: The executor may not assume the role.
            UnavailableError: Valid credentials are not available now.
        """
        found = self._credentials(job)
        masker.add(*found.secrets)
        return Credentials(*found.secrets)

    def close(self) -> None:
        """Stop the server."""
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None

    def answer(self, path: str, token: str) -> bytes | None:
        """Return the response body for a request of *path* with *token*; None without a loan.

        Raises:
            InvalidInputError: The executor may no longer assume the role.
            UnavailableError: Valid credentials are not available now, or the script sends too many
                concurrent requests.
        """
        loan = self._loans.get(path)
        # Compare also without a loan, so that timing reveals nothing.
        expected = secrets.token_urlsafe(32) if loan is None else loan.token
        if not hmac.compare_digest(token.encode(), expected.encode()) or loan is None:
            return None
        if not loan.room.acquire(blocking=False):
            raise UnavailableError("The script sends too many concurrent credential requests.")
        try:
            credentials = self._credentials(loan.job)
            loan.masker.add(*credentials.secrets)  # before the script can print them
            return credentials.document
        finally:
            loan.room.release()

    def _credentials(self, job: JobKey) -> _Credentials:
        """The job's credentials: cached, or new if the cached ones expire soon."""
        with self._lock:
            session = self._sessions.pop(job, None) or _Session()
            self._sessions[job] = session
            if len(self._sessions) > _JOBS:
                del self._sessions[next(iter(self._sessions))]
        if not session.turn.acquire(timeout=_TURN_SECONDS):
            raise UnavailableError("STS has not answered another run yet. Try again.")
        try:
            latest, now = session.latest, self._clock.now()
            if latest is None or latest.expires_at - now < _RENEWED:
                try:
                    latest = session.latest = self._assume(job)
                except UnavailableError:
                    if latest is None or latest.expires_at <= now:
                        raise
            return latest
        finally:
            session.turn.release()

    def _assume(self, job: JobKey) -> _Credentials:
        try:
            with translated("assume job role"):
                credentials = self._client.assume_role(
                    RoleArn=self._role_arn,
                    RoleSessionName=_NOT_IN_SESSION_NAME.sub(
                        "-", f"{job.job_id[:51]}@{job.tenant[:12]}"
                    ),
                    DurationSeconds=int(_LIFE.total_seconds()),
                    Tags=[
                        {"Key": "pool", "Value": self._pool},
                        {"Key": "tenant", "Value": tag_of(job.tenant)},
                        {"Key": "job", "Value": job.job_id},
                    ],
                    TransitiveTagKeys=[*SESSION_TAGS],
                )["Credentials"]
        except refused() as error:
            if error_code(error) in {"AccessDenied", "AccessDeniedException"}:
                raise InvalidInputError(
                    "jobRole",
                    self._role_arn,
                    "the pool's executor may not assume it",
                    "Allow the executor's role sts:AssumeRole and sts:TagSession in its trust "
                    f"policy, with the session tags {', '.join(SESSION_TAGS)}.",
                ) from error
            raise
        document = {
            "AccessKeyId": credentials["AccessKeyId"],
            "SecretAccessKey": credentials["SecretAccessKey"],
            "Token": credentials["SessionToken"],
            "Expiration": isoformat(credentials["Expiration"]),
        }
        secret = (document["AccessKeyId"], document["SecretAccessKey"], document["Token"])
        return _Credentials(json.dumps(document).encode(), secret, credentials["Expiration"])

    def _address(self) -> str:
        with self._lock:
            if self._server is None:
                try:
                    server = _Server(self)
                    self._url = server.start("job-role")
                except OSError as error:  # out of file descriptors or threads
                    raise UnavailableError(f"The job role cannot be lent: {error}.") from error
                self._server = server
            return self._url


class _Server(ScriptServer):
    """A complete request counts toward the limit of concurrent requests of its loan."""

    def __init__(self, role: StsJobRole) -> None:
        self.role = role
        super().__init__(_Handler, request_timeout=_REQUEST_TIMEOUT, max_pending=_MAX_PENDING)


class _Handler(ScriptHandler):
    server: _Server

    def answer(self) -> None:
        try:
            document = self.server.role.answer(self.path, self.headers.get("Authorization", ""))
        except Exception:  # noqa: BLE001 - the next loan reports the error
            self.reply(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        if document is None:
            self.reply(HTTPStatus.NOT_FOUND)
        else:
            self.reply(HTTPStatus.OK, {"Content-Type": "application/json"}, document)
