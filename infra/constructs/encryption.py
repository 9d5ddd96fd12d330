"""The customer-managed KMS key for all stored data, and the permissions to use it."""

from collections.abc import Sequence

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.setting_types import KEEP
from infra.settings import Settings, StackTarget
from infra.store_settings import KmsSettings

READ = ("kms:Decrypt",)
WRITE = ("kms:Decrypt", "kms:GenerateDataKey")
"""Sending to a queue and uploading to a bucket are writes. S3 and SQS verify writes by decrypting
them."""
TABLES = (
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
    *("kms:ReEncryptFrom", "kms:ReEncryptTo"),
)
"""Permissions that DynamoDB requires to read and write items of an encrypted table."""
_LOG_ACTIONS = (
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
    *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
)


class Encryption(Construct):
    """`key`: the key of all tables, queues, buckets and log groups; None for AWS-managed keys."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self.key: kms.IKey | None = None
        self._policies: dict[str, iam.Policy] = {}
        if settings.kms is None or settings.target is StackTarget.LOCAL:
            return
        if not isinstance(settings.kms, KmsSettings):
            self.key = self._create(settings)
        else:
            self.key = kms.Key.from_key_arn(self, "Key", settings.kms.key_arn)

    def allow(self, role: iam.Role, service: str, actions: Sequence[str]) -> None:
        """Allow *role* to use the key for *actions*, only through *service* (`s3`, `sqs` or
        `dynamodb`) in this region. The permission has a dedicated policy: see `before`.
        """
        if self.key is None:
            return
        if role.node.path not in self._policies:
            self._policies[role.node.path] = iam.Policy(role, "Key", roles=[role])
        stack = Stack.of(self)
        via = f"{service}.{stack.region}.{stack.url_suffix}"
        self._policies[role.node.path].add_statements(
            iam.PolicyStatement(
                actions=list(actions),
                resources=[self.key.key_arn],
                conditions={"StringEquals": {"kms:ViaService": via}},
            )
        )

    def before(self, *stores: Construct) -> None:
        """Let the roles use the key before *stores* get it. The other policies of a role name the
        stores, so an update changes these first: until the policies followed, each request would be
        denied.
        """
        for each in stores:
            each.node.add_dependency(*self._policies.values())

    def _create(self, settings: Settings) -> kms.Key:
        stays = settings.audit_lock is not None or not settings.remove_data
        key = kms.Key(
            self,
            "Key",
            description="nextfire: tables, queues, buckets and logs",
            enable_key_rotation=True,
            # Retained data cannot be read without the key.
            removal_policy=KEEP if stays else RemovalPolicy.DESTROY,
        )
        stack = Stack.of(self)
        groups = stack.format_arn(
            service="logs",
            resource="log-group",
            resource_name="*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"logs.{stack.region}.{stack.url_suffix}")],
                actions=[*_LOG_ACTIONS],
                resources=["*"],  # in a key policy this means the key itself
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
        return key
