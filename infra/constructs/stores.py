"""The tables and the buckets, which outlive the stack."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.setting_types import KEEP
from infra.settings import Settings
from infra.store_settings import EXPIRES_BY, AuditLockSettings, DueCapacity
from nextfire.adapters.dynamodb.run_items import DEAD_INDEX

FIRST_DEPLOYMENT = "nextfire:firstDeployment"
"""Key of the context: the deployment creates the stack. If it fails, CloudFormation removes its
tables, which it cannot do if they are protected from deletion.
"""
_TEXT = dynamodb.AttributeType.STRING


def _key(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=_TEXT)


@dataclass(frozen=True)
class _Stream:
    """A table has a stream. `existing`: its ARN, if the table is adopted and the ARN is known."""

    existing: str | None


def _retention(lock: AuditLockSettings) -> s3.ObjectLockRetention:
    period = Duration.days(lock.period.days)
    if lock.mode == "COMPLIANCE":
        return s3.ObjectLockRetention.compliance(period)
    return s3.ObjectLockRetention.governance(period)


def _only_new_objects(bucket: s3.IBucket) -> iam.PolicyStatement:
    """Deny overwriting of objects to all principals: each PUT must require a free key."""
    return iam.PolicyStatement(
        effect=iam.Effect.DENY,
        principals=[iam.AnyPrincipal()],
        actions=["s3:PutObject"],
        resources=[bucket.arn_for_objects("*")],
        conditions={
            "Null": {"s3:if-none-match": "true"},
            "Bool": {"s3:ObjectCreationOperation": "true"},
        },
    )


def _keep_policy_of(bucket: s3.Bucket, *, retained: bool) -> None:
    """Keep the policy of a *retained* bucket, too: the CDK applies the bucket's removal policy to
    the bucket alone, and an adopted bucket keeps the policy that it has.
    """
    if retained and bucket.policy is not None:
        bucket.policy.apply_removal_policy(KEEP)


class Stores(Construct):
    """Tables and buckets: created and retained, or adopted by name as configured."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, key: kms.IKey | None
    ) -> None:
        super().__init__(scope, construct_id)
        self._key = key
        self._remove_data = settings.remove_data
        self._enforce_ssl = settings.enforce_ssl
        self._is_first = self.node.try_get_context(FIRST_DEPLOYMENT) is not None
        self._private_bucket = partial(
            s3.Bucket,
            self,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=key,
            # One KMS request for many objects instead of one per object.
            bucket_key_enabled=True if key else None,
            enforce_ssl=self._enforce_ssl,
        )
        adopt = settings.adopt
        self.jobs = self._table(
            "Jobs",
            adopt.jobs,
            partition="tenant",
            sort="job_id",
            stream=_Stream(adopt.streams.jobs),
        )
        self.due = self._table(
            "Due", adopt.due, partition="bucket", sort="entry", capacity=settings.due_capacity
        )
        self.runs = self._table(
            "Runs",
            adopt.runs,
            partition="job",
            sort="run_id",
            expires_at=EXPIRES_BY["runs"],
            stream=_Stream(adopt.streams.runs),
            recovery=settings.runs_recovery,
        )
        if isinstance(self.runs, dynamodb.Table):
            # A sparse index: only DEAD runs have its keys; others cost nothing. Entries are small:
            # a mass failure writes one for each run.
            self.runs.add_global_secondary_index(
                index_name=DEAD_INDEX,
                partition_key=_key("attention"),
                sort_key=_key("attention_at"),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            )
        self.control = self._table("Control", adopt.control, partition="id")
        self.keys = self._table(
            "Keys",
            adopt.keys,
            partition="tenant",
            sort="key_id",
            expires_at=EXPIRES_BY["keys"],
            stream=_Stream(adopt.streams.keys),
        )
        self.requests = self._table(
            "Requests",
            adopt.requests,
            partition="request",
            expires_at=EXPIRES_BY["requests"],
            stream=_Stream(adopt.streams.requests),
        )
        self.endpoints = self._table(
            "Endpoints",
            adopt.endpoints,
            partition="owner",
            sort="destination",
            expires_at=EXPIRES_BY["endpoints"],
        )
        self.overview = self._table(
            "Overview",
            adopt.overview,
            partition="log",
            sort="place",
            expires_at=EXPIRES_BY["overview"],
        )
        self.scripts = self._bucket("Scripts", adopt.scripts, versioned=True)
        # Logs are rewritten under the same name as they grow: versioning would keep each state.
        self.outputs = self._bucket(
            "Outputs",
            adopt.outputs,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(settings.output_retention.days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )

        self.audit = self._audit_bucket(adopt.audit, settings.audit_lock)

    def _audit_bucket(self, existing: str | None, lock: AuditLockSettings | None) -> s3.IBucket:
        """The bucket of the audit chain. With a *lock* it is always retained."""
        if existing:
            return s3.Bucket.from_bucket_name(self, "Audit", existing)
        retained = lock is not None or not self._remove_data
        bucket = self._private_bucket(
            "Audit",
            versioned=True,
            # Enabled from the start, so that a lock can be set later without a new bucket.
            object_lock_enabled=True,
            object_lock_default_retention=_retention(lock) if lock else None,
            removal_policy=KEEP if retained else RemovalPolicy.DESTROY,
            auto_delete_objects=not retained,
        )
        if self._enforce_ssl:
            bucket.add_to_resource_policy(_only_new_objects(bucket))
        _keep_policy_of(bucket, retained=retained)
        return bucket

    def _table(
        self,
        construct_id: str,
        existing: str | None,
        *,
        partition: str,
        sort: str | None = None,
        expires_at: str | None = None,
        stream: _Stream | None = None,
        recovery: bool = True,
        capacity: DueCapacity | None = None,
    ) -> dynamodb.ITable:
        if existing:
            return dynamodb.Table.from_table_attributes(
                self,
                construct_id,
                table_name=existing,
                table_stream_arn=stream.existing if stream else None,
            )
        table = dynamodb.Table(
            self,
            construct_id,
            partition_key=_key(partition),
            sort_key=_key(sort) if sort else None,
            time_to_live_attribute=expires_at,
            # Both images: the changed attributes are those that differ between them.
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if stream else None,
            billing_mode=(
                dynamodb.BillingMode.PROVISIONED
                if capacity
                else dynamodb.BillingMode.PAY_PER_REQUEST
            ),
            write_capacity=capacity.writes if capacity else None,
            read_capacity=capacity.reads if capacity else None,
            encryption=(
                dynamodb.TableEncryption.CUSTOMER_MANAGED
                if self._key
                else dynamodb.TableEncryption.AWS_MANAGED
            ),
            encryption_key=self._key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=recovery
            ),
            deletion_protection=not (self._remove_data or self._is_first),
            removal_policy=self._removal_policy,
        )
        if capacity:
            # The CDK omits the default of CloudFormation, to which an update must change the table.
            cast("dynamodb.CfnTable", table.node.default_child).billing_mode = "PROVISIONED"
        return table

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
        bucket = self._private_bucket(
            construct_id,
            versioned=versioned,
            lifecycle_rules=list(lifecycle_rules),
            removal_policy=self._removal_policy,
            auto_delete_objects=self._remove_data,
        )
        _keep_policy_of(bucket, retained=not self._remove_data)
        return bucket

    @property
    def _removal_policy(self) -> RemovalPolicy:
        return RemovalPolicy.DESTROY if self._remove_data else KEEP
