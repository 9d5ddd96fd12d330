"""Types of settings: durations, JSON given as text, and their checks."""

import json
from datetime import timedelta
from typing import Annotated

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter
from pydantic.alias_generators import to_camel

from nextfire.domain.audit_pass import LOOK_BACK_AT_MOST

KEEP = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""The policy of what outlives the stack, unless the deployment that creates it fails."""
MAX_AUDIT_EVERY = LOOK_BACK_AT_MOST / 2
"""An audit may itself take that long: then it is an alarm."""
LOG_RETENTIONS = {
    timedelta(days=days): retention
    for days, retention in {
        1: logs.RetentionDays.ONE_DAY,
        3: logs.RetentionDays.THREE_DAYS,
        7: logs.RetentionDays.ONE_WEEK,
        14: logs.RetentionDays.TWO_WEEKS,
        30: logs.RetentionDays.ONE_MONTH,
        90: logs.RetentionDays.THREE_MONTHS,
        180: logs.RetentionDays.SIX_MONTHS,
        365: logs.RetentionDays.ONE_YEAR,
        731: logs.RetentionDays.TWO_YEARS,
    }.items()
}


def iso8601(duration: timedelta) -> str:
    """Format *duration* for the functions' environment, for example `PT2M10S`."""
    return str(TypeAdapter(timedelta).dump_python(duration, mode="json"))


def whole_seconds(duration: timedelta) -> timedelta:
    if duration <= timedelta(0) or duration.microseconds:
        raise ValueError("use a duration of one or more whole seconds, such as PT60S")
    return duration


def whole_minutes(duration: timedelta) -> timedelta:
    if duration % timedelta(minutes=1):
        raise ValueError("EventBridge rules have minutes: use whole minutes, such as PT15M")
    return duration


def whole_days(duration: timedelta) -> timedelta:
    if duration % timedelta(days=1):
        raise ValueError("S3 object locks have days: use whole days, such as P365D")
    return duration


def within_look_back(every: timedelta) -> timedelta:
    if every > MAX_AUDIT_EVERY:
        raise ValueError(
            f"must be at most {iso8601(MAX_AUDIT_EVERY)}: audits look back "
            f"{LOOK_BACK_AT_MOST.days} days, and losses before that are not found"
        )
    return every


def known_retention(duration: timedelta) -> timedelta:
    if duration not in LOG_RETENTIONS:
        days = ", ".join(f"P{known.days}D" for known in LOG_RETENTIONS)
        raise ValueError(
            f"CloudWatch Logs supports only fixed retention periods: use one of {days}"
        )
    return duration


def json_if_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(
            """not valid JSON. For example -c 'tenantWeights={"acme": 2}'"""
        ) from error


Duration = Annotated[timedelta, AfterValidator(whole_seconds)]
SQS_VISIBILITY_LIMIT = timedelta(hours=12)
Lease = Annotated[Duration, Field(ge=timedelta(seconds=5), le=SQS_VISIBILITY_LIMIT)]
"""Heartbeats are sent every third of it. A shorter one would end if DynamoDB responds slowly.
Workers hide the messages that they receive for it, and SQS rejects more than its limit."""
PoolName = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=32)
]


def pascal(name: str) -> str:
    """A pool's name as part of a logical id or an output's key: `batch-etl` becomes `BatchEtl`."""
    return "".join(part.capitalize() for part in name.split("-"))


_PRINCIPAL_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[\w+=,.@/-]+$"
_MAX_PRINCIPALS_BYTES = 1_600


def _fit_in_trust_policy(principals: tuple[str, ...]) -> tuple[str, ...]:
    if len(json.dumps(principals)) > _MAX_PRINCIPALS_BYTES:
        raise ValueError(
            f"must have at most {_MAX_PRINCIPALS_BYTES} bytes as JSON, because a trust policy is "
            "limited to 2,048 characters: name one role, which the others may assume"
        )
    return principals


Principals = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=_PRINCIPAL_ARN)], ...],
    AfterValidator(_fit_in_trust_policy),
]
"""ARNs of roles and users that a role trusts."""


class StrictSettings(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,  # the reference page is made of them
    )
