"""Permissions, spelled out: CDK's own grants give more than the functions use."""

from collections.abc import Sequence

from aws_cdk import aws_iam as iam


def allow(grantee: iam.IGrantable, actions: Sequence[str], *resources: str) -> None:
    """Allow *grantee* exactly *actions* on *resources* (ARNs)."""
    grantee.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(actions=list(actions), resources=list(resources))
    )


def dynamodb(*operations: str) -> list[str]:
    return [f"dynamodb:{operation}" for operation in operations]


def sqs(*operations: str) -> list[str]:
    return [f"sqs:{operation}" for operation in operations]
