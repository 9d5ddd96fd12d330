"""The identity and scopes of the caller, as the gateway authenticated them. Headers and other parts
of the request cannot change them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from nextfire.dataclass import dataclass
from nextfire.domain.errors import ForbiddenError
from nextfire.domain.iam_rules import IamRule, iam_caller, rule_for
from nextfire.domain.keys import Scope, implied
from nextfire.domain.restriction import UNRESTRICTED, RestrictedError, Restriction

_SCOPE_PREFIXES = ("nextfire/", "nextfire:", "nextfire.")
"""Prefixes that an issuer may put before the name of a scope."""
_CLAIMED = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:@|+-]{1,64}")
"""Valid tenant in a token, such as `auth0|abc`. Tenants are part of S3 paths and other names.
The pattern is narrower than `TENANT`, which still accepts older stored items.
"""
_MAX_PRINCIPAL = 256


class NoTenantError(ForbiddenError):
    """The token is valid, but names no tenant."""

    def __init__(self, claim: str) -> None:
        super().__init__(
            f"Your token names no valid tenant: its claim `{claim}` must be 1 to 64 letters, "
            "digits and `._:@|+-`, and not `.` or `..`. For example `acme`. Ask its issuer."
        )


class NoRuleError(ForbiddenError):
    """The signature is valid, but no rule of the setting `iam` matches its role."""

    def __init__(self, arn: str) -> None:
        super().__init__(
            f"No rule of the setting `iam` matches {arn}. Use a role that one matches, or ask the "
            'operator for a rule such as {"role": "team-etl", "tenant": "acme"}.'
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. `principal`: name in the audit log: the id of an API key, an ARN, or the subject of
    a token. `counted_as`: identity for the request rate; the caller cannot choose it.
    """

    tenant: str
    principal: str
    scopes: frozenset[Scope]
    counted_as: str
    restriction: Restriction = UNRESTRICTED

    def check_address(self, address: str) -> None:
        """Check that the caller may send requests from *address*.

        Raises:
            RestrictedError: The key is restricted to other networks.
        """
        if not self.restriction.admits_address(address):
            raise RestrictedError(
                f"Your key is restricted to some networks, and {address or 'this'} is not in "
                "them. Call from one of them, or use another key."
            )


def identify(
    authorizer: Mapping[str, Any] | None,
    *,
    tenant_claim: str | None = None,
    iam_rules: Sequence[IamRule] = (),
) -> Identity:
    """The identity in ``requestContext.authorizer``: ``lambda``, which our authorizer returned for
    an API key; ``iam`` of a signed request, by *iam_rules* (without any: the tenant is the account,
    with all scopes); ``jwt`` of a token, by its *tenant_claim*.

    Raises:
        NoTenantError: The token has no valid claim.
        NoRuleError: There are rules for roles, and none matches.
        PermissionError: The request has no identity, which the gateway should have rejected.
    """
    authorizer = authorizer or {}
    if key := authorizer.get("lambda"):
        return _of_key(key)
    iam = authorizer.get("iam") or {}
    if account := iam.get("accountId"):
        return _of_signature(str(account), str(iam.get("userArn") or ""), iam_rules)
    claims = (authorizer.get("jwt") or {}).get("claims")
    if claims and tenant_claim:
        return _of_token(claims, tenant_claim)
    raise PermissionError("a request without an identity passed the authorizer")


def including(scopes: str) -> frozenset[Scope]:
    """The scopes in *scopes* (separated by spaces) and those they imply. Ignores unknown words."""
    known = {scope.value: scope for scope in Scope}
    return implied([known[word] for word in map(_without_prefix, scopes.split()) if word in known])


def _of_key(key: Mapping[str, Any]) -> Identity:
    tenant, key_id, scopes = (key.get(name) for name in ("tenant", "keyId", "scopes"))
    if not (isinstance(tenant, str) and isinstance(key_id, str) and isinstance(scopes, str)):
        raise PermissionError("the authorizer returned no tenant, key or scopes")
    if not tenant or not key_id:
        raise PermissionError("the authorizer returned an empty tenant or key")
    restriction = UNRESTRICTED
    if (text := key.get("restricted")) is not None:
        # An unreadable restriction is an error, never an unrestricted key.
        found = json.loads(text)
        scopes = str(found["scopes"])
        restriction = Restriction(tuple(found["cidrs"]), dict(found["labels"]))
        if not restriction:
            raise PermissionError("the authorizer returned an empty restriction")
    return Identity(tenant, key_id, including(scopes), f"key:{key_id}", restriction)


def _of_signature(account: str, arn: str, rules: Sequence[IamRule]) -> Identity:
    caller = iam_caller(arn)
    counted_as = f"iam:{caller.arn}" if caller else f"iam:{account}"
    if not rules:
        return Identity(account, arn or account, frozenset(Scope), counted_as)
    rule = rule_for(caller, rules)
    if rule is None:
        raise NoRuleError(arn or account)
    return Identity(rule.tenant, arn, implied(rule.scopes), counted_as)


def _of_token(claims: Mapping[str, Any], tenant_claim: str) -> Identity:
    tenant = claims.get(tenant_claim)
    if not isinstance(tenant, str) or not _CLAIMED.fullmatch(tenant):
        raise NoTenantError(tenant_claim)
    principal = str(claims.get("sub") or claims.get("client_id") or "unknown")[:_MAX_PRINCIPAL]
    scopes = including(str(claims.get("scope") or ""))
    return Identity(tenant, principal, scopes, f"jwt:{principal}")


def _without_prefix(word: str) -> str:
    for prefix in _SCOPE_PREFIXES:
        word = word.removeprefix(prefix)
    return word
