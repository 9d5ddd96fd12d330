"""Signatures of scripts: ed25519, by the library cryptography.

It is imported where a pool trusts signers, and nowhere else: it takes time to load, and is in the
layer only then. The standard library has no ed25519.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.places import tenant_place
from nextfire.domain.ports import ScriptStore
from nextfire.domain.script import FetchedScript, ScriptSource, signed_text, split_url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_REMEDY = (
    "Sign it with the key of a trusted signer: nextfire scripts push FILE --sign KEYFILE "
    "--pool {pool}."
)


class SignedScripts:
    """`ScriptStore`: those of *scripts* that one of *signers* signed for their tenant, for *pool*
    and under their name. Nothing of a script is read before its signature was verified.
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
        """As `ScriptStore.fetch`.

        Raises:
            InvalidInputError: It is not signed, or not by a trusted signer.
        """
        script = self._scripts.fetch(source)
        remedy = _REMEDY.format(pool=self._pool)
        _, key = split_url(source.url)
        name = key.removeprefix(tenant_place(self._pool, source.tenant))
        if name == key or "/" in name:
            problem = f"this pool runs signed scripts of the pool {self._pool!r} only"
            raise InvalidInputError("script", source.url, problem, remedy)
        if script.signature is None:
            problem = "it is not signed, and this pool runs signed scripts only"
            raise InvalidInputError("script", source.url, problem, remedy)
        text = signed_text(tenant=source.tenant, pool=self._pool, name=name, sha256=script.sha256)
        if not any(_verifies(key, script.signature, text) for key in self._signers):
            problem = (
                f"its signature is not of a trusted signer for this tenant, pool, name and digest "
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
            "NEXTFIRE_TRUSTED_SIGNERS is set, and the library cryptography is not installed. "
            "Install it, for example with: pip install cryptography"
        ) from error
    kind, _, text = signer.partition(":")
    try:
        if kind == "ed25519":
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except ValueError:
        pass
    raise ValueError(
        f"NEXTFIRE_TRUSTED_SIGNERS holds {signer!r}, which is not a public key. Write it as "
        "`nextfire scripts keygen` prints it: ed25519:BASE64"
    )


def _verifies(key: Ed25519PublicKey, signature: str, text: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        key.verify(base64.b64decode(signature, validate=True), text)
    except (InvalidSignature, ValueError):
        return False
    return True
