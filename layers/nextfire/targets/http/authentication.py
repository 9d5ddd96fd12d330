"""Authentication of HTTP callbacks. Each value is added to the masker before it is used."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

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
    SigV4Auth,
)
from nextfire.targets.http.transport import Request, Response
from nextfire.targets.role import RoleCredentials

_EARLY = 60.0
"""Seconds before its expiry at which a token is replaced."""
_USUAL_LIFE = 300.0
"""Seconds for which a token without `expires_in` is used."""
_LONGEST_LIFE = 86_400.0
_MAX_TOKENS = 256
_OK = 200
_THROTTLED = 429
_SERVER_ERROR = 500


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


Send = Callable[[Request], Response]
"""Sends a request within the attempt: by its deadline, and to allowed addresses only."""


class Authentication:
    """Makes the headers that authenticate a call. Thread-safe."""

    def __init__(
        self,
        secrets: Secrets,
        role: RoleCredentials | None,
        identity: WebIdentity | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secrets, self._role, self._identity = secrets, role, identity
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._tokens: dict[str, _Token] = {}

    def headers(self, auth: Auth | None, job: JobKey, masker: Masker, send: Send) -> dict[str, str]:
        """Return the headers of *auth* that do not depend on the request.

        Raises:
            InvalidInputError: A secret, the role or the token server's response is not usable.
            NotFoundError: A secret does not exist.
            UnavailableError: A service did not answer.
            CallFailedError: The token server did not respond.
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
            InvalidInputError, UnavailableError: As for `RoleCredentials`.
        """
        if not isinstance(auth, SigV4Auth):
            return request
        if self._role is None:
            raise _no_role("sigv4")
        # The SDK takes a second to import, and few callbacks need it.
        from botocore.auth import SigV4Auth as Signer  # noqa: PLC0415
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415
        from botocore.credentials import Credentials  # noqa: PLC0415

        role = self._role.credentials(job, masker)
        signed = AWSRequest(
            request.method, request.url, headers=dict(request.headers), data=request.body
        )
        keys = Credentials(role.access_key, role.secret_key, role.token)
        Signer(keys, auth.service, auth.region).add_auth(signed)
        return Request(request.method, request.url, dict(signed.headers.items()), request.body)

    def rejected(self, auth: Auth | None, job: JobKey) -> None:
        """Forget the cached token of *auth*: the receiver responded 401."""
        if isinstance(auth, OAuth2Auth):
            with self._lock:
                for key in [key for key in self._tokens if key.startswith(_owner(auth, job))]:
                    del self._tokens[key]

    def _secret(self, job: JobKey, reference: object, masker: Masker) -> str:
        value = self._secrets.resolve(job.tenant, reference)  # type: ignore[arg-type] # a Reference
        masker.add(value)
        return value

    def _oauth2(self, auth: OAuth2Auth, job: JobKey, masker: Masker, send: Send) -> str:
        secret = self._secret(job, auth.client_secret, masker)
        # Another secret never gets a token that this one got.
        key = f"{_owner(auth, job)}#{hashlib.sha256(secret.encode()).hexdigest()}"
        with self._lock:
            cached = self._tokens.get(key)
        if cached is None or cached.until <= self._monotonic():
            cached = self._fetch(auth, secret, masker, send)
            with self._lock:
                if len(self._tokens) >= _MAX_TOKENS:
                    self._tokens.pop(next(iter(self._tokens)))
                self._tokens[key] = cached
        masker.add(cached.text)
        return cached.text

    def _fetch(self, auth: OAuth2Auth, secret: str, masker: Masker, send: Send) -> _Token:
        form = {"grant_type": "client_credentials", "scope": auth.scope, "audience": auth.audience}
        basic = base64.b64encode(f"{auth.client_id}:{secret}".encode()).decode()
        masker.add(basic)
        response = send(
            Request(
                "POST",
                auth.token_url,
                {
                    "Authorization": f"Basic {basic}",
                    "Content-Type": "application/x-www-form-urlencoded",
                    "Accept": "application/json",
                },
                urlencode({name: value for name, value in form.items() if value}).encode(),
            )
        )
        if response.status == _THROTTLED or response.status >= _SERVER_ERROR:
            raise UnavailableError(f"the token server responded {response.status}. Try again.")
        token, life = _read_token(response)
        if token is None:
            raise InvalidInputError(
                "target.http.auth",
                auth.token_url.partition("?")[0],
                f"the token server responded {response.status} without an access token",
                "Check tokenUrl, clientId, clientSecret and scope.",
            )
        return _Token(token, self._monotonic() + max(life - _EARLY, 0))


def _read_token(response: Response) -> tuple[str | None, float]:
    """The token and its life in seconds."""
    try:
        document = json.loads(response.body) if response.status == _OK else {}
        token, life = document.get("access_token"), document.get("expires_in", _USUAL_LIFE)
        if not isinstance(token, str) or not token:
            return None, 0
        return _line(token), min(max(float(life), 0), _LONGEST_LIFE)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None, 0


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
