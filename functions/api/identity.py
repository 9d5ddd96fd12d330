"""Who calls, as the gateway found out, and what they may do. Nothing that the request says of
itself is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from functions.api.problems import ForbiddenError
from nextfire.domain.errors import NextfireError
from nextfire.domain.keys import Scope, implied

_OURS = ("nextfire/", "nextfire:", "nextfire.")
"""What an issuer may put before the name of a scope."""
_CLAIMED = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:@|+-]{1,64}")
"""A tenant that a token can name: a part of paths in S3 and of names elsewhere, like `auth0|abc`.
It is narrower than `TENANT`, so that what was stored before is read still.
"""
_MAX_PRINCIPAL = 256


class NoTenantError(ForbiddenError):
    """The token is good, and names no tenant."""

    def __init__(self, claim: str) -> None:
        NextfireError.__init__(
            self,
            f"Your token holds no tenant: its claim `{claim}` has to name one, in 1 to 64 "
            "letters, digits and `._:@|+-`, and not `.` or `..`. Ask whoever issues it.",
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `principal` names them in the audit log: an API key's id, an ARN, or a token's
    subject.
    """

    tenant: str
    principal: str
    scopes: frozenset[Scope]


def identify(authorizer: Mapping[str, Any] | None, *, tenant_claim: str | None = None) -> Identity:
    """The identity in ``requestContext.authorizer``: ``lambda``, as our authorizer tells it of an
    API key; ``iam``, of a signed request; ``jwt``, of a token, whose tenant is its *tenant_claim*.

    Raises:
        NoTenantError: The token has no such claim.
        PermissionError: There is no identity. The gateway lets nobody through without, so this is
            a fault of ours.
    """
    authorizer = authorizer or {}
    if key := authorizer.get("lambda"):
        return _of_key(key)
    iam = authorizer.get("iam") or {}
    if account := iam.get("accountId"):
        return Identity(str(account), str(iam.get("userArn") or account), frozenset(Scope))
    claims = (authorizer.get("jwt") or {}).get("claims")
    if claims and tenant_claim:
        return _of_token(claims, tenant_claim)
    raise PermissionError("a request without an identity came past the authorizer")


def including(scopes: str) -> frozenset[Scope]:
    """The scopes that *scopes*, divided by spaces, names or includes. Unknown words give none."""
    known = {scope.value: scope for scope in Scope}
    return implied([known[word] for word in map(_own, scopes.split()) if word in known])


def _of_key(key: Mapping[str, Any]) -> Identity:
    tenant, key_id, scopes = (key.get(name) for name in ("tenant", "keyId", "scopes"))
    if not (isinstance(tenant, str) and isinstance(key_id, str) and isinstance(scopes, str)):
        raise PermissionError("the authorizer told no tenant, key or scopes")
    if not tenant or not key_id:
        raise PermissionError("the authorizer told an empty tenant or key")
    return Identity(tenant, key_id, including(scopes))


def _of_token(claims: Mapping[str, Any], tenant_claim: str) -> Identity:
    tenant = claims.get(tenant_claim)
    if not isinstance(tenant, str) or not _CLAIMED.fullmatch(tenant):
        raise NoTenantError(tenant_claim)
    principal = str(claims.get("sub") or claims.get("client_id") or "unknown")
    return Identity(tenant, principal[:_MAX_PRINCIPAL], including(str(claims.get("scope") or "")))


def _own(word: str) -> str:
    for prefix in _OURS:
        word = word.removeprefix(prefix)
    return word
