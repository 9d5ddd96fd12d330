"""Settings of how the API authenticates callers."""

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from infra.setting_types import StrictSettings
from nextfire.domain.iam_rules import IamRule

MAX_RULES_BYTES = 1_000
"""Maximum bytes of IAM rules in a function's environment."""

_MAX_AUDIENCES = 50
"""Quota of API Gateway, which cannot be raised."""


class Auth(StrEnum):
    """How the API authenticates callers."""

    KEYS = "keys"
    """API keys, which the API issues and stores itself."""
    IAM = "iam"
    """SigV4: roles and users of this account; `iam` maps them to tenants."""
    JWT = "jwt"
    """Tokens of an OIDC issuer; a claim holds the tenant."""


_TENANT = re.compile(r"[A-Za-z0-9._:@|+-]{1,64}")
"""Tenants of callers; those of keys and of rules are narrower."""
_ACCOUNT = re.compile(r"[0-9]{12}")


class JwtSettings(StrictSettings):
    """The tokens that the API accepts with `auth` jwt."""

    issuer: Annotated[str, StringConstraints(pattern=r"^https://[^\s?#]+$")]
    """The tokens' `iss`; also the base URL for the discovery of the signing keys."""
    audience: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1)], ...],
        Field(min_length=1, max_length=_MAX_AUDIENCES),
    ]
    """Accepted values of a token's `aud` or `client_id`."""
    tenant_claim: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:./-]{1,128}$")]
    """The claim that holds the tenant."""


def without_callers(
    tenants: Iterable[str], auth: Auth, rules: tuple[IamRule, ...] | None
) -> list[str]:
    """Those of *tenants* that no caller has, sorted. Jobs of former callers may still have them."""
    if rules:
        known = {rule.tenant for rule in rules}
        return sorted({*tenants} - known)
    form = _ACCOUNT if auth is Auth.IAM else _TENANT
    return sorted({tenant for tenant in tenants if not form.fullmatch(tenant)})


def checked_rules(rules: tuple[IamRule, ...] | None) -> tuple[IamRule, ...] | None:
    """Return *rules*.

    Raises:
        ValueError: They are empty, or exceed `MAX_RULES_BYTES`.
    """
    if rules is None:
        return None
    if not rules:
        raise ValueError("iam must have a rule. To use the account as the tenant, remove iam")
    text = json.dumps([rule.model_dump(mode="json", by_alias=True) for rule in rules])
    if len(text) > MAX_RULES_BYTES:
        raise ValueError(
            f"iam must have at most {MAX_RULES_BYTES} bytes as JSON, because a function's "
            "environment is limited to 4 KB: use patterns such as team-etl-*"
        )
    return rules
