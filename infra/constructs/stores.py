"""The tables and the buckets: what must outlive the stack."""

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.settings import OUTPUTS_KEPT, Settings

ATTENTION_INDEX = "attention"
_TEXT = dynamodb.AttributeType.STRING


def _key(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=_TEXT)


class Stores(Construct):
    """Tables and buckets, created and retained, or adopted by name where the settings say so."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: Settings) -> None:
        super().__init__(scope, construct_id)
        self._remove_data = settings.remove_data
        self._enforce_ssl = settings.enforce_ssl
        adopt = settings.adopt
        self.jobs = self._table("Jobs", adopt.jobs, partition="tenant", sort="job_id")
        self.due = self._table("Due", adopt.due, partition="bucket", sort="entry")
        self.runs = self._table(
            "Runs", adopt.runs, partition="job", sort="run_id", expires_at="expires_at"
        )
        if isinstance(self.runs, dynamodb.Table):
            # Sparse: only runs that need a human carry its keys; one that succeeds pays nothing.
            self.runs.add_global_secondary_index(
                index_name=ATTENTION_INDEX,
                partition_key=_key("attention"),
                sort_key=_key("attention_at"),
                projection_type=dynamodb.ProjectionType.ALL,
            )
        self.control = self._table("Control", adopt.control, partition="id")
        self.keys = self._table(
            "Keys", adopt.keys, partition="tenant", sort="key_id", expires_at="forget_at"
        )
        self.requests = self._table(
            "Requests", adopt.requests, partition="request", expires_at="expires_at"
        )
        self.scripts = self._bucket("Scripts", adopt.scripts, versioned=True)
        # Logs are written again as they grow, under the same name: versions would keep each state.
        self.outputs = self._bucket(
            "Outputs",
            adopt.outputs,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(OUTPUTS_KEPT.days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )

    def _table(
        self,
        construct_id: str,
        existing: str | None,
        *,
        partition: str,
        sort: str | None = None,
        expires_at: str | None = None,
    ) -> dynamodb.ITable:
        if existing:
            return dynamodb.Table.from_table_name(self, construct_id, existing)
        return dynamodb.Table(
            self,
            construct_id,
            partition_key=_key(partition),
            sort_key=_key(sort) if sort else None,
            time_to_live_attribute=expires_at,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=not self._remove_data,
            removal_policy=self._removal_policy,
        )

    def _bucket(
        self,
        construct_id: str,
        existing: str | None,
        *,
        versioned: bool = False,
        lifecycle_rules: Sequence[s3.LifecycleRule] = (),
    ) -> s3.IBucket:
        if existing:
            return s3.Bucket.from_bucket_name(self, construct_id, existing)
        return s3.Bucket(
            self,
            construct_id,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=self._enforce_ssl,
            versioned=versioned,
            lifecycle_rules=list(lifecycle_rules),
            removal_policy=self._removal_policy,
            auto_delete_objects=self._remove_data,
        )

    @property
    def _removal_policy(self) -> RemovalPolicy:
        return RemovalPolicy.DESTROY if self._remove_data else RemovalPolicy.RETAIN
