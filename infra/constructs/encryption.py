"""The customer-managed KMS key of everything that is stored, and who may use it for what."""

from collections.abc import Sequence

from aws_cdk import ArnFormat, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.constructs.grants import allow
from infra.settings import KmsSettings, Settings, Target

READ = ("kms:Decrypt",)
WRITE = ("kms:Decrypt", "kms:GenerateDataKey")
"""To send to a queue is to write, and so is an upload to a bucket; S3 and SQS check what they wrote
by decrypting it."""
TABLES = (
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
    *("kms:ReEncryptFrom", "kms:ReEncryptTo"),
)
"""What DynamoDB asks of who reads and writes items of an encrypted table."""
_OF_LOGS = (
    *("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"),
    *("kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
)


class Encryption(Construct):
    """`key`: the key of all tables, queues, buckets and log groups; None: keys of AWS's."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self.key: kms.IKey | None = None
        if settings.kms is None or settings.target is Target.LOCAL:
            return
        if not isinstance(settings.kms, KmsSettings):
            self.key = self._create(settings)
        else:
            self.key = kms.Key.from_key_arn(self, "Key", settings.kms.key_arn)

    def allow(self, role: iam.IGrantable, service: str, actions: Sequence[str]) -> None:
        """Let *role* use the key for *actions*, in requests to *service* only (`s3`, `sqs` or
        `dynamodb`) and in this region.
        """
        if self.key is None:
            return
        stack = Stack.of(self)
        via = f"{service}.{stack.region}.{stack.url_suffix}"
        conditions = {"StringEquals": {"kms:ViaService": via}}
        allow(role, actions, self.key.key_arn, conditions=conditions)

    def _create(self, settings: Settings) -> kms.Key:
        stays = settings.audit_lock is not None or not settings.remove_data
        key = kms.Key(
            self,
            "Key",
            description="nextfire: tables, queues, buckets and logs",
            enable_key_rotation=True,
            # Without the key what is retained cannot be read.
            removal_policy=RemovalPolicy.RETAIN if stays else RemovalPolicy.DESTROY,
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
                actions=[*_OF_LOGS],
                resources=["*"],  # in a key's policy: this key
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
            )
        )
        return key
