"""Settings of tables, buckets and keys: adopted stores, encryption, the lock of the audit chain."""

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from infra.setting_types import Duration, StrictSettings, json_if_text, whole_days

_KEY_ARN = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$"
_STREAM_ARN = r"^arn:aws[a-z-]*:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[\w.-]+/stream/[0-9T:.-]+$"
TableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{3,255}$")]
BucketName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
StreamArn = Annotated[str, StringConstraints(pattern=_STREAM_ARN)]
EXPIRES_BY = {
    "runs": "expires_at",
    "keys": "forget_at",
    "requests": "expires_at",
    "endpoints": "expires_at",
    "overview": "expires_at",
}
"""By table, the attribute after whose instant DynamoDB deletes an item."""
READS_PER_SHARD = 2
"""Minimum of `DueCapacity.reads` for each shard: polls of awake watchers use 1.8 a second."""
_TABLE_QUOTA = 40_000
"""Default quota of a table, in units per second (DynamoDB developer guide, "Quotas")."""
_LONGEST_LOCK = timedelta(days=36_500)
"""Limit of S3: 100 years."""
Units = Annotated[int, Field(ge=1, le=_TABLE_QUOTA)]


class AdoptedStreams(StrictSettings):
    """Streams of adopted tables, which feed the audit chain and the overview."""

    jobs: StreamArn | None = None
    """Stream of the jobs table."""
    runs: StreamArn | None = None
    """Stream of the runs table."""
    keys: StreamArn | None = None
    """Stream of the table of API keys."""
    requests: StreamArn | None = None
    """Stream of the requests table."""


class KmsSettings(StrictSettings):
    """An existing customer-managed key."""

    key_arn: Annotated[str, StringConstraints(pattern=_KEY_ARN)]
    """ARN of the key."""


def kms_if_json(value: object) -> object:
    """Return *value*, decoded if it is a JSON object; `create` is not JSON.

    Raises:
        ValueError: It is something else.
    """
    if str(value).startswith("{"):
        return json_if_text(value)
    if value is None or value == "create" or isinstance(value, KmsSettings):
        return value
    raise ValueError(
        'must be "create" or an existing key, for example {"keyArn": '
        '"arn:aws:kms:eu-central-1:123456789012:key/0a1b2c3d-1111-2222-3333-444455556666"}'
    )


class DueCapacity(StrictSettings):
    """Provisioned capacity of the table of due entries."""

    writes: Units
    """Write units per second. A run uses 2: size it for an average use of 70 %."""
    reads: Units
    """Read units per second, at least 2 for each of `readShards`: the watchers' polls use 1.8."""


class AuditLockSettings(StrictSettings):
    """The object lock of the audit chain: objects cannot be changed or deleted for `period`."""

    mode: Literal["GOVERNANCE", "COMPLIANCE"]
    """GOVERNANCE: `s3:BypassGovernanceRetention` overrides the lock. COMPLIANCE: nothing does."""
    period: Annotated[Duration, AfterValidator(whole_days), Field(le=_LONGEST_LOCK)]
    """How long an object is locked, in whole days, up to P36500D."""


class Adopted(StrictSettings):
    """Physical names of existing stores that the stack uses instead of creating them."""

    jobs: TableName | None = None
    """Name of the jobs table."""
    due: TableName | None = None
    """Name of the table of due entries."""
    runs: TableName | None = None
    """Name of the runs table."""
    control: TableName | None = None
    """Name of the control table."""
    keys: TableName | None = None
    """Name of the table of API keys."""
    requests: TableName | None = None
    """Name of the requests table."""
    endpoints: TableName | None = None
    """Name of the table of endpoints."""
    overview: TableName | None = None
    """Name of the table of the overview."""
    scripts: BucketName | None = None
    """Name of the scripts bucket."""
    outputs: BucketName | None = None
    """Name of the outputs bucket."""
    audit: BucketName | None = None
    """The bucket of an existing audit chain, which the stack continues."""
    streams: AdoptedStreams = AdoptedStreams()
    """ARNs of the streams of adopted tables."""

    @property
    def tables(self) -> dict[str, str]:
        """The physical names of the adopted tables."""
        names = ("jobs", "due", "runs", "control", "keys", "requests", "endpoints", "overview")
        return {name: found for name in names if (found := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        stores: dict[str, str] = {}
        for name, table in self.tables.items():
            if (other := stores.setdefault(table, name)) != name:
                raise ValueError(
                    f"{other} and {name} name the same table, {table}: name the table of each"
                )
        for name, arn in self.streams.model_dump(exclude_none=True).items():
            table = getattr(self, name)
            if table is None:
                raise ValueError(f"streams.{name} requires {name}: set both, or neither")
            if f":table/{table}/stream/" not in arn:
                raise ValueError(
                    f"streams.{name} is not a stream of the table {table}: name its stream, "
                    "LatestStreamArn of `aws dynamodb describe-table`"
                )
        return self
