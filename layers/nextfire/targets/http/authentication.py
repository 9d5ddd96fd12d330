"""Authentication of HTTP callbacks. Each value is added to the masker before it is used."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import quote_plus, urlencode

from nextfire.dataclass import dataclass, field, replace
from nextfire.domain.errors import InvalidInputError, UnavailableError
from nextfire.domain.ids import JobKey
from nextfire.domain.masking import Masker
from nextfire.domain.ports.access import Secrets
from nextfire.targets.http.document import (
    ApiKeyAuth,
    Auth,
    BasicAuth,
    BearerAuth,
    OAuth2Auth,
    OidcAuth,
    Reference,
    SigV4Auth,
)
from nextfire.targets.http.messages import CallFailedError, Failure, Request, Response
from nextfire.targets.role import RoleCredentials

_EARLY = 60.0
"""Seconds before its expiry at which a token is replaced."""
_USUAL_LIFE = 300.0
"""Seconds for which a token without `expires_in` is used."""
_LONGEST_LIFE = 86_400.0
_MAX_TOKENS = 256
_OTHER_FETCHES_WITHIN = 5.0
"""Seconds to wait for the token that another call is fetching, before fetching one as well."""
_READ_AGAIN_EVERY = 5.0
"""Seconds between two reads of a secret that receivers reject."""
_OK = 200
_UNAUTHORIZED = 401
_THROTTLED = 429
_SERVER_ERROR = 500
_NO_ANSWER = frozenset(
    {
        Failure.NAME,
        Failure.CONNECT,
        Failure.TIMEOUT,
        Failure.CLOSED,
        Failure.BUSY,
    }
)
"""Failures of the token server's: the callback itself was not sent."""


class WebIdentity(Protocol):
    """Issues web identity tokens of the pool's job role."""

    def token(self, job: JobKey, audience: str, masker: Masker) -> str:
        """Return a signed token for *audience*, which is added to *masker*.

        Raises:
            InvalidInputError: The pool has no job role, or the role may not get tokens.
            UnavailableError: AWS did not answer.
        """


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    until: float


@dataclass(slots=True)
class _Cached:
    """The token of a client, None before the first. `fetching`: held while it is fetched.
    `is_failing`: the token server did not answer the latest request.
    """

    token: _Token | None = None
    is_failing: bool = False
    fetching: threading.Lock = field(default_factory=threading.Lock)

    def valid(self, now: float) -> _Token | None:
        return self.token if self.token is not None and now < self.token.until else None


_SecretKey = tuple[str, Reference]
"""Tenant and reference."""
Send = Callable[[Request], Response]
"""Sends a request within the attempt: by its deadline, and to allowed addresses only."""


class Authentication:
    """Makes the headers that authenticate a call. Thread-safe. *aws_actions*: see
    `check_signature`.
    """

    def __init__(
        self,
        secrets: Secrets,
        role: RoleCredentials | None,
        identity: WebIdentity | None,
        *,
        aws_actions: Sequence[str] = ("*",),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secrets, self._role, self._identity = secrets, role, identity
        self._aws_actions, self._monotonic = aws_actions, monotonic
        self._lock = threading.Lock()
        self._tokens: dict[str, _Cached] = {}
        self._doubted: set[_SecretKey] = set()
        self._read_again_at: dict[_SecretKey, float] = {}

    def headers(self, auth: Auth | None, job: JobKey, masker: Masker, send: Send) -> dict[str, str]:
        """Return the headers of *auth* that do not depend on the request.

        Raises:
            InvalidInputError: A secret or the role is not usable.
            NotFoundError: A secret does not exist.
            UnavailableError: A service did not answer.
            CallFailedError: The token server did not respond, or not with a token.
        """
        match auth:
            case BearerAuth():
                return _bearer(self._secret(job, auth.token, masker))
            case BasicAuth():
                password = self._secret(job, auth.password, masker)
                text = base64.b64encode(f"{auth.username}:{password}".encode()).decode()
                masker.add(text)
                return {"Authorization": f"Basic {text}"}
            case ApiKeyAuth():
                return {auth.header: _line(self._secret(job, auth.value, masker))}
            case OAuth2Auth():
                return _bearer(self._oauth2(auth, job, masker, send))
            case OidcAuth():
                if self._identity is None:
                    raise _no_role("oidc")
                return _bearer(self._identity.token(job, auth.audience, masker))
        return {}

    def sign(self, auth: Auth | None, request: Request, job: JobKey, masker: Masker) -> Request:
        """Return *request* with an AWS signature, if *auth* asks for one.

        Raises:
            InvalidInputError: The pool may not sign for the service; or as for `RoleCredentials`.
            UnavailableError: As for `RoleCredentials`.
        """
        if not isinstance(auth, SigV4Auth):
            return request
        check_signature(auth, self._aws_actions)
        if self._role is None:
            raise _no_role("sigv4")
        # The SDK takes a second to import, and few callbacks need it.
        from botocore.auth import S3SigV4Auth as SignerOfS3  # noqa: PLC0415
        from botocore.auth import SigV4Auth as Signer  # noqa: PLC0415
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.credentials import Credentials  # noqa: PLC0415

        role = self._role.credentials(job, masker)
        signed = AWSRequest(
            request.method, request.url, headers=dict(request.headers), data=request.body
        )
        keys = Credentials(role.access_key, role.secret_key, role.token)
        # S3 also requires the digest of the body as a header, and encodes paths once only.
        signer = SignerOfS3 if auth.service == "s3" else Signer
        signer(keys, auth.service, auth.region).add_auth(signed)
        return replace(request, headers=dict(signed.headers.items()))

    def rejected(self, auth: Auth | None, job: JobKey, status: int) -> None:
        """Forget the cached secret of *auth*, or with 401 the token: the receiver responded so."""
        match auth:
            case BearerAuth():
                self._doubt(job, auth.token)
            case BasicAuth():
                self._doubt(job, auth.password)
            case ApiKeyAuth():
                self._doubt(job, auth.value)
            case OAuth2Auth() if status == _UNAUTHORIZED:
                with self._lock:
                    for key in [key for key in self._tokens if key.startswith(_owner(auth, job))]:
                        del self._tokens[key]

    def _doubt(self, job: JobKey, reference: Reference) -> None:
        """Read the secret again for the next call. It may have just been rotated, and all retries
        of a run can come within the minute for which its value is cached.
        """
        key, now = (job.tenant, reference), self._monotonic()
        with self._lock:
            if now >= self._read_again_at.get(key, now):
                self._doubted.add(key)

    def _is_doubted(self, key: _SecretKey) -> bool:
        with self._lock:
            is_doubted = key in self._doubted
            if is_doubted:
                self._doubted.discard(key)
                if len(self._read_again_at) >= _MAX_TOKENS:
                    self._read_again_at.clear()
                self._read_again_at[key] = self._monotonic() + _READ_AGAIN_EVERY
            return is_doubted

    def _secret(self, job: JobKey, reference: Reference, masker: Masker) -> str:
        again = self._is_doubted((job.tenant, reference))
        value = self._secrets.resolve(job.tenant, reference, again=again)
        value = value.rstrip("\r\n")  # files given to the AWS CLI end with one
        masker.add(value)
        return value

    def _oauth2(self, auth: OAuth2Auth, job: JobKey, masker: Masker, send: Send) -> str:
        secret = self._secret(job, auth.client_secret, masker)
        # Another secret never gets a token that this one got.
        key = f"{_owner(auth, job)}#{hashlib.sha256(secret.encode()).hexdigest()}"
        with self._lock:
            cached = self._tokens.setdefault(key, _Cached())
            if len(self._tokens) > _MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
        token, before = cached.valid(self._monotonic()), cached.token
        if token is None:
            # The calls of a batch share one token, but not the fate of one that hangs.
            waits = 0 if cached.is_failing else _OTHER_FETCHES_WITHIN
            is_mine = cached.fetching.acquire(timeout=waits)
            if not is_mine and cached.is_failing:
                # One call at a time waits for a server that is down; the others keep no slot busy.
                raise UnavailableError("no token: the token server does not answer other calls")
            try:
                # Also one without a life, if it was fetched while this call waited.
                fresh = cached.token if cached.token is not before else None
                token = cached.valid(self._monotonic()) or fresh
                token = token or self._fetch(auth, job, secret, masker, send)
                cached.token, cached.is_failing = token, False
            except UnavailableError:
                cached.is_failing = True
                raise
            except CallFailedError as error:
                # A call that was stopped shows nothing of the server.
                cached.is_failing = cached.is_failing and error.problem is Failure.STOPPED
                raise
            finally:
                if is_mine:
                    cached.fetching.release()
        masker.add(token.text)
        return token.text

    def _fetch(
        self, auth: OAuth2Auth, job: JobKey, secret: str, masker: Masker, send: Send
    ) -> _Token:
        form = {"grant_type": "client_credentials", "scope": auth.scope, "audience": auth.audience}
        # RFC 6749, section 2.3.1: servers decode them, and would read a + as a blank.
        client_id, encoded = quote_plus(auth.client_id), quote_plus(secret)
        basic = base64.b64encode(f"{client_id}:{encoded}".encode()).decode()
        masker.add(basic)
        request = Request(
            "POST",
            auth.token_url,
            {
                "Authorization": f"Basic {basic}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
            urlencode({name: value for name, value in form.items() if value}).encode(),
        )
        try:
            response = send(request)
        except CallFailedError as error:
            if error.problem in _NO_ANSWER:
                raise UnavailableError(f"no token: {error.text}") from error
            raise
        if response.status == _THROTTLED or response.status >= _SERVER_ERROR:
            raise UnavailableError(f"the token server responded {response.status}. Try again.")
        token, life = _read_token(response)
        if token is None:
            # Not permanent: the secret may have been rotated a moment ago.
            self._doubt(job, auth.client_secret)
            raise CallFailedError(
                Failure.PROTOCOL,
                f"the token server responded {response.status} without an access token. Check"
                " tokenUrl, clientId, clientSecret and scope.",
                sent=True,
            )
        return _Token(token, self._monotonic() + life - min(_EARLY, life / 2))


def check_signature(auth: SigV4Auth, allowed: Sequence[str]) -> None:
    """Check that a pool may sign requests for the service of *auth*. *allowed*: `awsActions` of the
    pool. A signature does not name the action, so all actions of the service must be allowed.

    Raises:
        InvalidInputError: It may not.
    """
    if not {"*", f"{auth.service}:*"} & {*allowed}:
        raise InvalidInputError(
            "target.http.auth.service",
            auth.service,
            "the pool may not sign requests for all actions of this service, and a signature does "
            "not tell the action",
            f"Add {auth.service}:* to awsActions of the pool (now: "
            f"{', '.join(allowed)[:200] or 'none'}), or use target.aws for single actions.",
        )


def _read_token(response: Response) -> tuple[str | None, float]:
    """The token and its life in seconds."""
    try:
        document = json.loads(response.body) if response.status == _OK else {}
        token, life = document.get("access_token"), _life(document.get("expires_in"))
        if not isinstance(token, str) or not token:
            return None, 0
        return _line(token), life
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None, 0


def _life(expires_in: object) -> float:
    try:
        life = float(expires_in)  # type: ignore[arg-type] # raises TypeError
    except (ValueError, TypeError, OverflowError):
        return _USUAL_LIFE
    return min(life, _LONGEST_LIFE) if life >= 0 else 0  # not NaN


def _owner(auth: OAuth2Auth, job: JobKey) -> str:
    parts = [job.tenant, auth.token_url, auth.client_id, auth.scope, auth.audience]
    return json.dumps(parts)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {_line(token)}"}


def _line(value: str) -> str:
    """Check that *value* can be in a header. The error does not have it."""
    text = value.strip()
    if not text.isascii() or not text.isprintable():
        raise InvalidInputError(
            "target.http.auth",
            "the secret",
            "its value cannot be in a header",
            "Store a value of printable ASCII characters on one line.",
        )
    return text


def _no_role(kind: str) -> InvalidInputError:
    return InvalidInputError(
        "target.http.auth.type", kind, "the pool has no job role", "Set jobRole of the pool."
    )
