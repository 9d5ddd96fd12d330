"""Permissions of the executors of one pool.

Executors have no access to the scripts, outputs, secrets and job roles of other pools. In the
shared tables they may make only the writes that executors need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from infra.constructs.grants import allow, deny, deny_others, dynamodb, only_attributes
from infra.constructs.pool import Pool
from infra.constructs.stores import Stores
from nextfire.adapters.dynamodb.due_items import DUE_TABLE
from nextfire.adapters.dynamodb.endpoint_items import ENDPOINTS_TABLE
from nextfire.adapters.dynamodb.fields import Writer, names
from nextfire.adapters.dynamodb.flow_items import FLOWS
from nextfire.adapters.dynamodb.job_items import JOBS_TABLE, PAUSED_FIELDS
from nextfire.adapters.dynamodb.run_items import RUNS_TABLE
from nextfire.adapters.scripts.job_role import SESSION_TAGS
from nextfire.domain.places import pool_place

_COMPLETED_JOB = names(JOBS_TABLE, of=Writer.EXECUTORS)
"""Attributes that `DynamoDbJobStore.complete` uses: no definition, no payload, no schedule."""
_PAUSED_JOB = names(PAUSED_FIELDS)
"""Attributes that `DynamoDbJobStore.pause` uses in addition: a callback can ask for a pause."""
_DISPATCH = names(DUE_TABLE, of=Writer.EXECUTORS)
"""Attributes of a `DispatchEntry` item. They do not suffice for a FIRE or BACKFILL entry."""
_MINUTES = "2???-??-??T??:??Z#*"
"""Buckets of the table `due` that watchers read; excludes the bucket of quarantined entries."""
_CHANGED_RUN = names(RUNS_TABLE, of=Writer.EXECUTORS)
"""Attributes of a run that executors write: neither the payload nor the requester."""
_ENDPOINT = tuple({*names(ENDPOINTS_TABLE, of=Writer.EXECUTORS), *names(FLOWS)})
"""Attributes of an endpoint and of the flow of its calls that executors write: no pause."""


@dataclass(frozen=True)
class ExecutorAccess:
    """Grants permissions to *role*, the role of an executor of *pool*.

    `wide`: grant access to all pools, as in versions that did not separate pools, while such a
    version may still run.
    """

    role: iam.Role
    pool: Pool
    stores: Stores
    wide: bool

    @property
    def _place(self) -> str:
        return "" if self.wide else pool_place(self.pool.name)

    def grant(self) -> None:
        """Grant access to the stores, to secrets and to the job role."""
        self._grant_tables()
        self._grant_buckets()
        self._grant_secrets()
        if job_role := self.pool.settings.job_role:
            self._grant_job_role(job_role)

    def _grant_tables(self) -> None:
        jobs, due, runs = (
            table.table_arn for table in (self.stores.jobs, self.stores.due, self.stores.runs)
        )
        allow(self.role, dynamodb("GetItem"), jobs)
        paused = _PAUSED_JOB if self.pool.settings.targets == "calls" else ()
        self._write(jobs, "UpdateItem", conditions=only_attributes(*{*_COMPLETED_JOB, *paused}))
        minutes = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [_MINUTES]}}
        self._write(due, "PutItem", conditions=_attributes(*_DISPATCH) | minutes)
        allow(self.role, dynamodb("GetItem", "Query"), runs)
        # PutItem replaces a whole item, so it could remove what a user requested.
        writes = ["PutItem", "UpdateItem"] if self.wide else ["UpdateItem"]
        self._write(runs, *writes, conditions=_attributes(*_CHANGED_RUN))
        # Whether watchers sleep: an executor that stores an entry that is due soon wakes one.
        leases = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["lease#*"]}}
        control = self.stores.control.table_arn
        allow(self.role, dynamodb("GetItem"), control, conditions=leases)
        # In any case: versions that did not separate pools do not know this table.
        endpoints = self.stores.endpoints.table_arn
        own = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [f"{self.pool.name}/*"]}}
        allow(self.role, dynamodb("GetItem"), endpoints, conditions=own)
        allow(self.role, dynamodb("PutItem"), endpoints, conditions=_attributes(*_ENDPOINT) | own)

    def _write(self, table: str, *operations: str, conditions: Mapping[str, Any]) -> None:
        allow(self.role, dynamodb(*operations), table, conditions=None if self.wide else conditions)

    def _grant_buckets(self) -> None:
        scripts, outputs = self.stores.scripts, self.stores.outputs
        # A pinned script may be an older version.
        if self.pool.settings.targets == "scripts":
            self._objects(scripts, "s3:GetObject", "s3:GetObjectVersion")
            self._list(scripts, "s3:ListBucket", "s3:ListBucketVersions")
        self._objects(outputs, "s3:GetObject", "s3:PutObject")
        # Without ListBucket, S3 returns 403 for absent objects.
        self._list(outputs, "s3:ListBucket")

    def _objects(self, bucket: s3.IBucket, *actions: str) -> None:
        allow(self.role, actions, bucket.arn_for_objects(f"{self._place}*"))

    def _list(self, bucket: s3.IBucket, *actions: str) -> None:
        prefix = {"StringLike": {"s3:prefix": f"{self._place}*"}}
        allow(self.role, actions, bucket.bucket_arn, conditions=None if self.wide else prefix)

    def _grant_secrets(self) -> None:
        stack = Stack.of(self.role)
        secrets = stack.format_arn(
            service="secretsmanager",
            resource="secret",
            resource_name=f"nextfire/{self._place}*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        allow(self.role, ["secretsmanager:GetSecretValue"], secrets)
        parameters = stack.format_arn(
            service="ssm", resource="parameter", resource_name=f"nextfire/{self._place}*"
        )
        allow(self.role, ["ssm:GetParameter"], parameters)

    def _grant_job_role(self, job_role: str) -> None:
        actions = ["sts:AssumeRole", "sts:TagSession"]
        allow(self.role, actions, job_role)
        if self.wide:
            return
        # Denied explicitly: within one account, a trust policy that names this role is enough to
        # allow the call.
        deny_others(self.role, actions, job_role)
        pool = {"StringNotEquals": {"aws:RequestTag/pool": self.pool.name}}
        deny(self.role, actions, job_role, conditions=pool)
        for keys in ("aws:TagKeys", "sts:TransitiveTagKeys"):
            others = {"ForAnyValue:StringNotEquals": {keys: [*SESSION_TAGS]}}
            deny(self.role, actions, job_role, conditions=others)


def _attributes(*names: str) -> dict[str, Any]:
    """The condition that a write uses no other attributes. Executors may read whole items, so the
    returned attributes are not limited.
    """
    return {"ForAllValues:StringEquals": {"dynamodb:Attributes": sorted(names)}}
