"""Verifies signatures of scripts (ed25519) with the library cryptography.

The library is imported only if a pool trusts signers: it loads slowly, and the layer contains it
only then. The standard library has no ed25519.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.places import tenant_place
from nextfire.domain.ports.scripts import ScriptStore
from nextfire.domain.script import FetchedScript, ScriptSource, signed_text, split_url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_REMEDY = (
    "Sign it with the key of a trusted signer: nextfire scripts push FILE --sign KEYFILE "
    "--pool {pool}."
)


class VerifyingScriptStore:
    """`ScriptStore` that returns only scripts of *scripts* with a valid signature.

    One of *signers* must have signed the script for its tenant, its name and *pool*. A script is
    not parsed before its signature is verified.
    """

    def __init__(self, scripts: ScriptStore, *, signers: Sequence[str], pool: str) -> None:
        """Build.

        Raises:
            ValueError: A signer is not a public key, or the library is not installed.
        """
        self._scripts = scripts
        self._pool = pool
        self._signers = [_public_key(each) for each in signers]

    def fetch(self, source: ScriptSource) -> FetchedScript:
        """See `ScriptStore.fetch`.

        Raises:
            InvalidInputError: The script is not signed, or not by a trusted signer.
        """
        script = self._scripts.fetch(source)
        remedy = _REMEDY.format(pool=self._pool)
        _, key = split_url(source.url)
        name = key.removeprefix(tenant_place(self._pool, source.tenant))
        if name == key or "/" in name:
            problem = f"this pool runs only signed scripts of the pool {self._pool!r}"
            raise InvalidInputError("script", source.url, problem, remedy)
        if script.signature is None:
            problem = "it is not signed, and this pool runs only signed scripts"
            raise InvalidInputError("script", source.url, problem, remedy)
        text = signed_text(tenant=source.tenant, pool=self._pool, name=name, sha256=script.sha256)
        if not any(_verifies(key, script.signature, text) for key in self._signers):
            problem = (
                f"it has no signature of a trusted signer for this tenant, pool, name and digest "
                f"(sha256:{script.sha256})"
            )
            raise InvalidInputError("script", source.url, problem, remedy)
        return script


def _public_key(signer: str) -> Ed25519PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PublicKey,
        )
    except ImportError as error:
        raise ValueError(
            "NEXTFIRE_TRUSTED_SIGNERS is set, but the library cryptography is not installed. "
            "Install it, for example with: pip install cryptography"
        ) from error
    kind, _, text = signer.partition(":")
    try:
        if kind == "ed25519":
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except ValueError:
        pass
    raise ValueError(
        f"Invalid public key {signer!r} in NEXTFIRE_TRUSTED_SIGNERS: use the format that "
        "`nextfire scripts keygen` prints, ed25519:BASE64"
    )


def _verifies(key: Ed25519PublicKey, signature: str, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        key.verify(base64.b64decode(signature, validate=True), text)
    except (InvalidSignature, ValueError):
        return False
    return True
