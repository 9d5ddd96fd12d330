"""The VPC attachment of a Lambda executor: network interfaces and outbound rules."""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.grants import allow
from infra.pool_settings import VpcSettings

_ON_INTERFACES = ["ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses"]
_DELETE = ["ec2:DeleteNetworkInterface"]
_CREATE = ["ec2:CreateNetworkInterface"]
_DESCRIBE = ["ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"]


class PrivateNetwork(Construct):
    """The network of one executor, and the permissions that its role needs for the attachment."""

    def __init__(
        self, scope: Construct, construct_id: str, *, pool: str, settings: VpcSettings
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._groups = list(settings.security_group_ids) or [self._https_only(pool)]
        self.config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(settings.subnet_ids), security_group_ids=self._groups
        )

    def grant(self, role: iam.Role) -> None:
        """Allow the Lambda service, which uses *role*, to manage network interfaces, but deny it to
        the function's code.

        The describe actions do not support resources. Lambda rejects a role that may not delete
        all interfaces. The function's code has the same role, so a deny statement removes these
        permissions from it: `lambda:SourceFunctionArn` is present in requests from a function's
        environment, but not in requests of the Lambda service.
        """
        interfaces = self._arn("network-interface", "*")
        # A shared subnet belongs to another account.
        subnets = [self._arn("subnet", each, account="*") for each in self._settings.subnet_ids]
        groups = [self._arn("security-group", each, account="*") for each in self._groups]
        allow(role, _CREATE, interfaces, *subnets, *groups)
        allow(role, _ON_INTERFACES, interfaces)
        allow(role, _DELETE, self._arn("*", "*"))
        allow(role, _DESCRIBE, "*")
        functions = Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name="*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        role.add_to_policy(
            iam.PolicyStatement(
                sid="NoNetworkInterfacesByCode",
                effect=iam.Effect.DENY,
                actions=[*_CREATE, *_ON_INTERFACES, *_DELETE, *_DESCRIBE],
                resources=["*"],
                conditions={"ArnLike": {"lambda:SourceFunctionArn": functions}},
            )
        )

    def _https_only(self, pool: str) -> str:
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=self._settings.vpc_id,
            # Required by the CDK but unused: the subnets are set explicitly.
            availability_zones=["unknown"],
        )
        group = ec2.SecurityGroup(
            self,
            "Wall",
            vpc=vpc,
            description=f"Executor of the pool {pool}: HTTPS out, nothing in",
            allow_all_outbound=False,
        )
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "HTTPS")
        return group.security_group_id

    def _arn(self, resource: str, name: str, *, account: str | None = None) -> str:
        return Stack.of(self).format_arn(
            service="ec2", resource=resource, resource_name=name, account=account
        )
