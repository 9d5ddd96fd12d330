"""AWS Signature Version 4 of a POST request."""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256

from nextfire.dataclass import dataclass

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """AWS credentials. Their `repr` hides the keys."""

    access_key: str
    secret_key: str
    token: str | None

    def __repr__(self) -> str:
        return "Credentials(…)"


class Signer:
    """Signs requests to *service* in *region*. The derived key is cached for its day."""

    def __init__(self, region: str, service: str) -> None:
        self._region = region
        self._service = service
        # A tuple that is replaced atomically: threads need no lock.
        self._kept: tuple[str, str, bytes] = ("", "", b"")

    def sign(
        self, headers: Mapping[str, str], body: bytes, credentials: Credentials, at: float
    ) -> dict[str, str]:
        """Return *headers*, all of which are signed, with the headers of the signature.

        Args:
            headers: Names in lower case, including `host`; values without leading, trailing or
                repeated spaces.
            body: The request body.
            credentials: The credentials to sign with.
            at: Seconds since the epoch.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
        signed = {**headers, "x-amz-date": stamp}
        if credentials.token:
            signed["x-amz-security-token"] = credentials.token
        names = sorted(signed)
        listed = ";".join(names)
        lines = "".join([f"{name}:{signed[name]}\n" for name in names])
        request = f"POST\n/\n\n{lines}\n{listed}\n{sha256(body).hexdigest()}"
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        signature = _hmac(self._key(stamp[:8], credentials.secret_key), text).hex()
        signed["authorization"] = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}"
        )
        return signed

    def _key(self, day: str, secret: str) -> bytes:
        kept = self._kept
        if kept[:2] != (day, secret):
            key = derived_key(secret, day, self._region, self._service)
            self._kept = kept = (day, secret, key)
        return kept[2]


def derived_key(secret: str, day: str, region: str, service: str) -> bytes:
    """The signing key for requests of one day to one service in one region."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
