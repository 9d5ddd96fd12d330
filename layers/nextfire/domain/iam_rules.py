"""Rules that map the IAM role of a signed request to a tenant and scopes.

A gateway event identifies the caller by an ARN. For an assumed role the ARN is
``arn:aws:sts::<account>:assumed-role/<role>/<session>``. IAM controls who can assume the role, but
the caller chooses the session name, so rules ignore the session name. The ARN does not contain the
path of the role, and the event does not contain session tags.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from nextfire.dataclass import dataclass
from nextfire.domain.document import StrictModel
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


class IamRule(StrictModel):
    """Assigns `tenant` and `scopes` to callers whose role matches `role`. `role`: the name of a
    role, the ARN of a role without its path, or the ARN of a user. `*` matches any characters
    except ``/`` and ``:``.
    """

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
    """The signer of a request. `arn`: ARN of the role or user, without the session. `name`: name of
    the role; empty for a user.
    """

    arn: str
    name: str

    def named_by(self, pattern: str) -> str:
        """The text to match with *pattern*: the ARN if *pattern* is an ARN, else the role name."""
        return self.arn if pattern.startswith("arn:") else self.name


def iam_caller(user_arn: str) -> IamCaller | None:
    """Parse *user_arn* from a gateway event. Returns None if it is neither a role nor a user. A
    federated user is rejected because the requester of its credentials chooses its name.
    """
    if match := _ASSUMED.fullmatch(user_arn):
        partition, account, role = match.groups()
        return IamCaller(f"arn:{partition}:iam::{account}:role/{role}", role)
    return IamCaller(user_arn, "") if _USER.fullmatch(user_arn) else None


def rule_for(caller: IamCaller | None, rules: Sequence[IamRule]) -> IamRule | None:
    """The first of *rules* that matches *caller*; None if no rule matches."""
    if caller is None:
        return None
    return next((rule for rule in rules if rule.matches(caller)), None)
