"""Signatures of HTTP callbacks, according to Standard Webhooks (v1 and v1a)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from datetime import datetime

from standardwebhooks import Webhook

from nextfire.domain.errors import InvalidInputError

_SYMMETRIC, _PRIVATE, _PUBLIC = "whsec_", "whsk_", "whpk_"
_MIN_BYTES, _MAX_BYTES = 24, 64
_SEED_BYTES = 32
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def signature_headers(
    secrets: Sequence[str], *, execution_id: str, body: bytes, now: datetime
) -> dict[str, str]:
    """Return the headers that sign *body*, with a signature by each of *secrets*.

    Raises:
        InvalidInputError: A secret is not `whsec_…` or `whsk_…`. The error does not have it.
    """
    signed = f"{execution_id}.{int(now.timestamp())}.".encode() + body
    signatures = [_signature(secret, execution_id, now, body, signed) for secret in secrets]
    return {
        "webhook-id": execution_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def public_key(secret: str) -> str:
    """Return the public key, `whpk_…`, of an ed25519 *secret*, `whsk_…`.

    Raises:
        InvalidInputError: *secret* is not valid.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    key = Ed25519PrivateKey.from_private_bytes(_seed(secret)).public_key()
    return _PUBLIC + base64.b64encode(key.public_bytes_raw()).decode()


def _signature(secret: str, execution_id: str, now: datetime, body: bytes, signed: bytes) -> str:
    if secret.startswith(_PRIVATE):
        # Loaded on first use: most callbacks are signed by HMAC.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PrivateKey,
        )

        made = Ed25519PrivateKey.from_private_bytes(_seed(secret)).sign(signed)
        return f"v1a,{base64.b64encode(made).decode()}"
    if not secret.startswith(_SYMMETRIC):
        raise _invalid(f"it starts neither with {_SYMMETRIC} nor with {_PRIVATE}")
    size = len(_decoded(secret.removeprefix(_SYMMETRIC)))
    if not _MIN_BYTES <= size <= _MAX_BYTES:
        raise _invalid(f"it has {size} bytes, not {_MIN_BYTES} to {_MAX_BYTES}")
    return Webhook(secret).sign(execution_id, now, body.decode())


def _seed(secret: str) -> bytes:
    seed = _decoded(secret.removeprefix(_PRIVATE))[:_SEED_BYTES]  # some append the public key
    if len(seed) != _SEED_BYTES:
        raise _invalid(f"it has {len(seed)} bytes, not {_SEED_BYTES}")
    return seed


def _decoded(text: str) -> bytes:
    """The bytes of *text*, base64 with or without padding and line breaks.

    Decoders disagree on other characters, such as the - and _ of URL-safe base64: they drop them or
    refuse the text, so a receiver could have another key.
    """
    text = "".join(text.split())
    if not _BASE64.fullmatch(text):
        raise _invalid("it has characters that are not base64; - and _ are URL-safe base64")
    try:
        return base64.b64decode(text + "==", validate=False)
    except binascii.Error:
        return b""


def _invalid(problem: str) -> InvalidInputError:
    return InvalidInputError(
        "target.http.sign",
        "the secret",
        f"not a Standard Webhooks secret: {problem}",
        "Use whsec_ and base64 of 24 to 64 random bytes, or whsk_ and base64 of an ed25519 seed.",
    )
