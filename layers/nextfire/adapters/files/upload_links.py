"""Signed, expiring URLs for uploads of scripts, in place of S3's presigned URLs."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime

from nextfire.domain.script import ScriptKey

UPLOADS = "/uploads/"
"""Path prefix of the URLs."""


@dataclass(frozen=True, slots=True)
class AllowedUpload:
    """What one URL allows: a PUT of exactly `size` bytes with the digest `sha256`, as the script
    `key`, until `expires_at` (whole seconds). `signature`: stored with the script.
    """

    key: ScriptKey
    size: int
    sha256: bytes
    signature: str | None
    expires_at: datetime


class UploadLinks:
    """Creates and reads URLs of the server at *base_url*, for example ``http://127.0.0.1:8080``.

    *secret*: at least 32 random bytes. Who knows it can create URLs.
    """

    def __init__(self, base_url: str, secret: bytes) -> None:
        self._base_url = base_url.rstrip("/")
        self._secret = secret

    def url(self, allowed: AllowedUpload) -> str:
        """Return the URL of *allowed*. It grants access to anyone who knows it."""
        key = allowed.key
        ticket = json.dumps(
            [
                *(key.tenant, key.pool, key.name, allowed.size, allowed.sha256.hex()),
                *(allowed.signature, int(allowed.expires_at.timestamp())),
            ]
        ).encode()
        return f"{self._base_url}{UPLOADS}{_text(ticket)}.{_text(self._proof(ticket))}"

    def read(self, path: str, now: datetime) -> AllowedUpload | None:
        """Return what the URL with this *path* allows; None if it is forged, damaged or expired."""
        encoded, _, proof = path.removeprefix(UPLOADS).partition(".")
        try:
            ticket, given = _bytes(encoded), _bytes(proof)
        except ValueError:
            return None
        if not hmac.compare_digest(self._proof(ticket), given):
            return None
        tenant, pool, name, size, sha256, signature, expires = json.loads(ticket)
        expires_at = datetime.fromtimestamp(expires, UTC)
        if now >= expires_at:
            return None
        key = ScriptKey(tenant, pool, name)
        return AllowedUpload(key, size, bytes.fromhex(sha256), signature, expires_at)

    def _proof(self, ticket: bytes) -> bytes:
        return hmac.new(self._secret, ticket, hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
