"""Explicit permissions: the CDK's grant methods allow more than the functions need."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import aws_iam as iam


def allow(
    grantee: iam.IGrantable,
    actions: Sequence[str],
    *resources: str,
    conditions: Mapping[str, Any] | None = None,
) -> None:
    """Allow *grantee* exactly *actions* on *resources* (ARNs), under *conditions*."""
    grantee.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)
    )


def deny(
    grantee: iam.IGrantable,
    actions: Sequence[str],
    *resources: str,
    conditions: Mapping[str, Any],
) -> None:
    """Deny *grantee* *actions* on *resources* (ARNs) under *conditions*. Overrides any grant."""
    grantee.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=list(actions),
            resources=list(resources),
            conditions=conditions,
        )
    )


def deny_others(grantee: iam.IGrantable, actions: Sequence[str], resource: str) -> None:
    """Deny *grantee* *actions* on all resources except *resource*, whatever grants them."""
    grantee.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=list(actions),
            not_resources=[resource],
        )
    )


def only_attributes(*names: str) -> dict[str, Any]:
    """The condition that a DynamoDB request uses and returns no other attributes.

    *names* must include the item's keys: each request uses them.
    """
    return {
        "ForAllValues:StringEquals": {"dynamodb:Attributes": sorted(names)},
        "StringEqualsIfExists": {"dynamodb:ReturnValues": ["NONE", "UPDATED_OLD", "UPDATED_NEW"]},
    }


def dynamodb(*operations: str) -> list[str]:
    return [f"dynamodb:{operation}" for operation in operations]


def sqs(*operations: str) -> list[str]:
    return [f"sqs:{operation}" for operation in operations]
