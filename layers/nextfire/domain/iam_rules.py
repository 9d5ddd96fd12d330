"""Which tenant and scopes a signed request has, by the role that signed it.

A gateway event names the caller by an ARN. Of an assumed role that is
``arn:aws:sts::<account>:assumed-role/<role>/<session>``: the role is what IAM let the caller
assume, the session name is what the caller chose, so the session name decides nothing. The ARN has
no path of the role, and session tags are not in the event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from pydantic.alias_generators import to_camel

from nextfire.domain.key_text import KEY_TENANT
from nextfire.domain.keys import Scope

_NAME = r"[\w+=,.@-]+"
_ASSUMED = re.compile(
    rf"arn:(aws[a-z-]*):sts::([0-9]{{12}}):assumed-role/({_NAME})/{_NAME}", re.ASCII
)
_USER = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:user/([\w+=,.@/-]+)", re.ASCII)
_PATTERN = re.compile(
    r"[\w+=,.@*-]{1,64}|arn:aws[a-z-]*:iam::[0-9]{12}:(role/[\w+=,.@*-]{1,64}|user/[\w+=,.@/*-]{1,576})",
    re.ASCII,
)


class IamRule(BaseModel):
    """Callers whose role matches `role` belong to `tenant` and have `scopes`. `role`: a role's name
    or its ARN without a path, or a user's ARN; `*` stands for any characters but ``/`` and ``:``.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    role: str
    tenant: Annotated[str, StringConstraints(pattern=rf"^{KEY_TENANT.pattern}$")]
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = tuple(Scope)

    @field_validator("role")
    @classmethod
    def _is_pattern(cls, role: str) -> str:
        if not _PATTERN.fullmatch(role):
            raise ValueError(
                "not a role's name or ARN. An ARN must have no path: the gateway does not report"
                " the path of an assumed role. For example team-etl-*,"
                " or arn:aws:iam::123456789012:role/team-etl"
            )
        return role

    def matches(self, caller: IamCaller) -> bool:
        parts = (re.escape(part) for part in self.role.split("*"))
        return re.fullmatch("[^/:]*".join(parts), caller.named_by(self.role)) is not None


@dataclass(frozen=True, slots=True)
class IamCaller:
    """Who signed a request: `arn` of the role or the user, without a session; `name` of the role,
    empty for a user.
    """

    arn: str
    name: str

    def named_by(self, pattern: str) -> str:
        """What *pattern* is compared with."""
        return self.arn if pattern.startswith("arn:") else self.name


def iam_caller(user_arn: str) -> IamCaller | None:
    """Who *user_arn*, of a gateway's event, is; None: neither a role nor a user. A federated user
    is neither: the caller that requests its credentials chooses its name.
    """
    if match := _ASSUMED.fullmatch(user_arn):
        partition, account, role = match.groups()
        return IamCaller(f"arn:{partition}:iam::{account}:role/{role}", role)
    return IamCaller(user_arn, "") if _USER.fullmatch(user_arn) else None


def rule_for(caller: IamCaller | None, rules: Sequence[IamRule]) -> IamRule | None:
    """The first of *rules* that *caller* matches; None if none does."""
    if caller is None:
        return None
    return next((rule for rule in rules if rule.matches(caller)), None)
