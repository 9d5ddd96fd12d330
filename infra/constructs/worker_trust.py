"""The principals that may assume a pool's worker role."""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.pool_settings import PoolSettings
from infra.settings import StackTarget


def worker_trust(scope: Construct, pool: PoolSettings, target: StackTarget) -> iam.IPrincipal:
    """ECS tasks of the stack's account and region, and the pool's `workerPrincipals`.

    On the local target also the root user of the emulated account: it has no other principal.
    """
    principals: list[iam.IPrincipal] = [_ecs_tasks(Stack.of(scope))]
    principals += [iam.ArnPrincipal(arn) for arn in pool.worker_principals or ()]
    if target is StackTarget.LOCAL:
        principals.append(_root_user(Stack.of(scope)))
    return iam.CompositePrincipal(*principals)


def _ecs_tasks(stack: Stack) -> iam.IPrincipal:
    # ECS does not pass a cluster or task when it assumes a task role: allow all of the account.
    source = stack.format_arn(service="ecs", resource="*", arn_format=ArnFormat.NO_RESOURCE_NAME)
    return iam.ServicePrincipal(
        "ecs-tasks.amazonaws.com",
        conditions={
            "StringEquals": {"aws:SourceAccount": stack.account},
            "ArnLike": {"aws:SourceArn": source},
        },
    )


def _root_user(stack: Stack) -> iam.IPrincipal:
    root = iam.AccountPrincipal(stack.account)
    return root.with_conditions({"ArnEquals": {"aws:PrincipalArn": root.arn}})
