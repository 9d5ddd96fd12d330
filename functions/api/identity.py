"""Who calls, as the gateway found out, and what they may do. Nothing that the request says of
itself is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Scope(StrEnum):
    """What a caller may do. Each includes those before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_INCLUDED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.READ, Scope.WRITE}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `principal` names them in the audit log: an API key's id, or an ARN."""

    tenant: str
    principal: str
    scopes: frozenset[Scope]


def identify(authorizer: Mapping[str, Any] | None) -> Identity:
    """The identity in ``requestContext.authorizer``.

    Raises:
        PermissionError: There is none. The gateway lets nobody through without, so this is a fault
            of ours.
    """
    iam = (authorizer or {}).get("iam") or {}
    if account := iam.get("accountId"):
        return Identity(str(account), str(iam.get("userArn") or account), frozenset(Scope))
    raise PermissionError("a request without an identity came past the authorizer")


def including(scopes: str) -> frozenset[Scope]:
    """The scopes that *scopes*, divided by spaces, names or includes. Unknown words give none."""
    known = (Scope(word) for word in scopes.split() if word in Scope.__members__.values())
    return frozenset[Scope]().union(*(_INCLUDED[scope] for scope in known))
