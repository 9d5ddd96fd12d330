"""The deployment's settings: the typed cdk.json context.

Context keys that contain a colon or start with `@` belong to the CDK and are ignored, and so are
`_OF_THE_CDK`. Any other key that is not a setting is an error. `-c key=value` on the command line
overrides cdk.json; structured values are JSON. Durations are ISO 8601.

`pool_settings`, `auth_settings` and `store_settings` have the settings with a structure.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from infra.auth_settings import Auth, JwtSettings, checked_rules, without_callers
from infra.concurrency import ConcurrencyShares, share
from infra.limits import MAX_GROUPS
from infra.pool_names import check_pool_names
from infra.pool_settings import LAMBDA_LIMIT, PoolSettings
from infra.setting_types import (
    KEEP,
    LOG_RETENTIONS,
    Duration,
    Lease,
    PoolName,
    StrictSettings,
    iso8601,
    json_if_text,
    known_retention,
    whole_minutes,
    within_look_back,
)
from infra.store_settings import (
    READS_PER_SHARD,
    Adopted,
    AuditLockSettings,
    DueCapacity,
    KmsSettings,
    kms_if_json,
)
from nextfire.domain.audit_pass import MAX_SEGMENTS
from nextfire.domain.iam_rules import IamRule
from nextfire.domain.quotas import NO_QUOTAS, RATES, TenantQuotas
from nextfire.domain.retention import MAX_RETENTION, MIN_RETENTION, RETENTION, RunRetention

_TOPIC_ARN = r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[\w.-]+$"
_OF_THE_CDK = {"acknowledged-issue-numbers", "cli-telemetry"}
"""Keys that the CDK command line stores in cdk.context.json and passes to the app."""
MIN_LIFE = timedelta(minutes=2)
MAX_WAKE_EVERY = timedelta(hours=12)
"""Half of a day, the longest period of the alarm on an auditor without invocations."""
MAX_TENANTS_BYTES = 2_000
"""Maximum bytes of tenant settings in a function's environment, which has 4 KB in total."""


class StackTarget(StrEnum):
    """The deployment target."""

    AWS = "aws"
    LOCAL = "local"
    """MiniStack on this machine: the machine's architecture and Python, the caller's
    credentials."""


class _Overrides(StrictSettings):
    """The settings of the local target, which `Settings` checks."""

    local: Annotated[dict[str, Any], BeforeValidator(json_if_text)]


class Settings(StrictSettings):
    """All settings of a deployment."""

    target: StackTarget = StackTarget.AWS
    """Where the stack is deployed: `aws`, or `local` for MiniStack on this machine."""
    pools: Annotated[
        dict[PoolName, PoolSettings], BeforeValidator(json_if_text), Field(min_length=1)
    ] = Field(default_factory=lambda: {"default": PoolSettings(executor="lambda")})
    """The pools, by name."""
    write_shards: Annotated[int, Field(ge=1, le=999)] = 4
    """Number of shards over which writers spread due entries. Increase `readShards` first."""
    read_shards: Annotated[int, Field(ge=1, le=999)] = 4
    """Number of shards that watchers read; at least `writeShards`."""
    groups: Annotated[int, Field(ge=1, le=MAX_GROUPS)] = 1
    """Number of watcher groups; the shards are divided among them."""
    tenant_weights: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=1000)]], BeforeValidator(json_if_text)
    ] = Field(default_factory=dict)
    """By tenant, the number of runs that it sends in each of its turns when not all runs can be
    sent at once, 1 to 1,000. Default: 1."""
    quotas: Annotated[TenantQuotas, BeforeValidator(json_if_text)] = NO_QUOTAS
    """Quotas of tenants: `default`, and exceptions by tenant in `tenants`."""
    life: Duration = timedelta(seconds=125)
    """Longest lifetime of one watcher invocation; more than two minutes, so that two overlap. It
    ends early if nothing is due within that time."""
    lease: Lease = timedelta(seconds=60)
    """How long an executor owns a run without a heartbeat, PT5S to PT12H."""
    watcher_memory: Annotated[int, Field(ge=128, le=10_240)] = 144
    """Memory of the watcher, in MiB. CPU is proportional to it: 144 MiB is a twelfth of a core."""
    api_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the API's function, in MiB."""
    auth: Auth = Auth.KEYS
    """How the API authenticates callers: API `keys`, signed requests (`iam`), or tokens (`jwt`)."""
    jwt: Annotated[JwtSettings | None, BeforeValidator(json_if_text)] = None
    """The tokens that the API accepts. Required with `auth` jwt, otherwise invalid."""
    iam: Annotated[
        tuple[IamRule, ...] | None, BeforeValidator(json_if_text), AfterValidator(checked_rules)
    ] = None
    """Rules that map roles to a tenant and scopes, with `auth` iam; the first match wins. At
    most 1,000 bytes as JSON. Default: the
    tenant is the account, with all scopes.
    """
    authorizer_memory: Annotated[int, Field(ge=128, le=10_240)] = 256
    """Memory of the function that checks API keys, in MiB."""
    audit_every: Annotated[Duration, AfterValidator(within_look_back)] = timedelta(days=1)
    """How often the auditor visits each job; at least `auditorWakeEvery`, and at most P7D."""
    auditor_wake_every: Annotated[Duration, AfterValidator(whole_minutes)] = timedelta(minutes=15)
    """How often the auditor is invoked to continue or start an audit: whole minutes, up to
    PT12H."""
    run_retention: Annotated[RunRetention, BeforeValidator(json_if_text)] = RunRetention()
    """How long the records of ended runs are kept: `succeeded`, by default P30D, and `dead`, by
    default P90D; P15D to P3650D. Other records, and those of jobs in a sequence, are kept at least
    90 days. Records that exist keep their time."""
    job_retention: Annotated[Duration, Field(ge=MIN_RETENTION, le=MAX_RETENTION)] = RETENTION
    """How long a COMPLETED or CANCELLED job is kept after its last change, P15D to P3650D. Then the
    auditor removes it, and its id is free. The records of its runs stay for their own retention."""
    audit_segments: Annotated[int, Field(ge=1, le=MAX_SEGMENTS)] = 1
    """Number of auditors that share an audit, 1 to 40. One visits about 5 million jobs a day; 100
    million need 24. Each takes up to one of the account's concurrent executions of Lambda. Lower
    it when no audit is in progress."""
    projector_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the projector, in MiB."""
    auditor_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the auditor, in MiB."""
    throttle_rate: Annotated[int, Field(ge=1)] = 200
    """API requests per second, over all callers."""
    throttle_burst: Annotated[int, Field(ge=1)] = 400
    """API requests at once, over all callers."""
    log_retention: Annotated[Duration, AfterValidator(known_retention)] = timedelta(days=30)
    """Retention of the other logs: 1, 3, 7, 14, 30, 90, 180, 365 or 731 days."""
    audit_retention: Annotated[Duration, AfterValidator(known_retention)] = timedelta(days=365)
    """Retention of the API function's log, which holds audit events, and of the access log."""
    kms: Annotated[KmsSettings | Literal["create"] | None, BeforeValidator(kms_if_json)] = None
    """The customer-managed key of tables, queues, buckets and logs: `create`, or an existing key.
    Default: keys that AWS manages."""
    audit_lock: Annotated[AuditLockSettings | None, BeforeValidator(json_if_text)] = None
    """Object lock of the audit chain. Default: its objects can be deleted."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The level of the functions' logs."""
    log_sample: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Part of the runs that succeed for which an executor on Lambda or Fargate logs a line, 0 to 1.
    Other outcomes are always logged. Every run has its record."""
    aws_client: Literal["lean", "boto3"] = "lean"
    """The client of DynamoDB and SQS: the functions' own (`lean`) or `boto3`. Worker processes read
    `NEXTFIRE_AWS_CLIENT`."""
    account_concurrency: Annotated[int, Field(ge=10, le=1_000_000)] = 10
    """The quota "Concurrent executions" of Lambda in this account and region, which new accounts
    have: 10. Show yours with `aws lambda get-account-settings`. From about 120, watcher, API and
    projector reserve a part; in smaller accounts, the concurrency of Lambda pools is limited so
    that enough remains for them. Other functions of the account are not counted."""
    alarm_topic_arn: Annotated[str, StringConstraints(pattern=_TOPIC_ARN)] | None = None
    """ARN of the SNS topic that the alarms notify. Default: none, or a new one if `alarmEmail` is
    set."""
    alarm_email: Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """The address that gets a mail for each alarm that needs an operator. SNS asks it to confirm
    the subscription."""
    alarm_on_dead_runs: bool = False
    """Whether dead runs, such as a user's failing script, notify `alarmTopicArn` or `alarmEmail`.
    Dead-letter queues have alarms only if it is set."""
    runs_recovery: bool = True
    """Whether the runs table has point-in-time recovery, 0.20 USD per GB and month. Run records are
    most of what the tables store; without it, a restore brings back the jobs and no history."""
    due_capacity: Annotated[DueCapacity | None, BeforeValidator(json_if_text)] = None
    """Provisioned capacity of the table of due entries, which costs less for a steady load:
    `nextfire cost --steady` prints the values. Default: on demand."""
    remove_data: bool = False
    """Whether deleting the stack also deletes tables, scripts, outputs, the audit log and the audit
    chain."""
    adopt: Annotated[Adopted, BeforeValidator(json_if_text)] = Adopted()
    """Existing stores that the stack uses instead of creating them."""
    pool_access: Literal["own", "all"] = "own"
    """The pools whose scripts, outputs and secrets an executor may access: `own`. Use `all` only
    for the update from a version that did not separate pools.
    """

    @property
    def signatures(self) -> bool:
        """Whether a pool verifies signatures of scripts or signs callbacks, for which the functions
        need another library.
        """
        return any(p.trusted_signers or p.targets == "calls" for p in self.pools.values())

    @property
    def retention(self) -> logs.RetentionDays:
        return LOG_RETENTIONS[self.log_retention]

    @property
    def output_retention(self) -> timedelta:
        """How long logs and results are kept: a week longer than the records that name them, which
        DynamoDB removes some days after they expire.
        """
        return self.run_retention.longest + timedelta(days=7)

    @property
    def quotas_json(self) -> str:
        """`quotas` in the format of the functions' environment: fields that were set, even null."""
        return self.quotas.model_dump_json(by_alias=True, exclude_unset=True)

    @property
    def audit_days(self) -> logs.RetentionDays:
        return LOG_RETENTIONS[self.audit_retention]

    @property
    def audit_removal(self) -> RemovalPolicy:
        """The removal policy of audit events, which by default outlive the stack."""
        return RemovalPolicy.DESTROY if self.remove_data else KEEP

    @property
    def enforce_ssl(self) -> bool:
        """Whether to deny requests without TLS. MiniStack enforces the policy and has no TLS."""
        return self.target is StackTarget.AWS

    @property
    def concurrency(self) -> ConcurrencyShares:
        """How the functions share `account_concurrency`.

        Raises:
            ValueError: It does not suffice.
        """
        pools = sum(pool.executor == "lambda" for pool in self.pools.values())
        return share(
            self.account_concurrency,
            groups=self.groups,
            pools=pools,
            auditors=self.audit_segments,
        )

    @property
    def watcher_timeout(self) -> timedelta:
        """The timeout of a hung watcher. Other watchers end by themselves after `life`."""
        return self.life + timedelta(seconds=20)

    @property
    def tenants_without_callers(self) -> list[str]:
        """The tenants that settings name and no caller has: maybe mistyped."""
        named = {*self.quotas.tenants, *self.tenant_weights}
        named |= {tenant for pool in self.pools.values() for tenant in pool.tenants or ()}
        return without_callers(named, self.auth, self.iam)

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.read_shards < self.write_shards:
            raise ValueError(
                "readShards must be at least writeShards; otherwise some entries are never read"
            )
        if self.groups > self.read_shards:
            raise ValueError("groups must not exceed readShards: a group without shards is idle")
        if len(self.quotas_json) + len(json.dumps(self.tenant_weights)) > MAX_TENANTS_BYTES:
            raise ValueError(
                f"quotas and tenantWeights must have at most {MAX_TENANTS_BYTES} bytes as JSON, "
                "because a function's environment is limited to 4 KB: move common values into the "
                "default"
            )
        if self.target is StackTarget.AWS:
            _ = self.concurrency
        if self.life < MIN_LIFE:
            raise ValueError(
                f"life must be at least {iso8601(MIN_LIFE)}: a watcher is invoked each minute, and "
                "one must be on standby while another is active"
            )
        if self.watcher_timeout > LAMBDA_LIMIT:
            raise ValueError("life must be at most PT14M40S: a watcher is a Lambda function")
        if (self.auth is Auth.JWT) != (self.jwt is not None):
            raise ValueError(
                'jwt (issuer, audience, tenantClaim) and "auth": "jwt" belong together: set both, '
                "or neither"
            )
        if self.iam and self.auth is not Auth.IAM:
            raise ValueError('iam (rules for roles) requires "auth": "iam": set it, or remove iam')
        if self.auditor_wake_every > MAX_WAKE_EVERY:
            raise ValueError(
                f"auditorWakeEvery must be at most {iso8601(MAX_WAKE_EVERY)}: the alarm on an "
                "auditor without invocations covers one day"
            )
        if self.audit_every < self.auditor_wake_every:
            raise ValueError(
                "auditEvery must be at least auditorWakeEvery: audits start only when the auditor "
                "is invoked"
            )
        self._check_bursts()
        self._check_due_capacity()
        check_pool_names(self.pools)
        if self.adopt.due and not self.adopt.control:
            raise ValueError(
                "adopt.due requires adopt.control: without its cursors, watchers do not read the "
                "adopted entries"
            )
        return self

    def _check_bursts(self) -> None:
        tenants = {tenant: self.quotas.of(tenant) for tenant in self.quotas.tenants}
        for name, quotas in {"default": self.quotas.default, **tenants}.items():
            values = quotas.model_dump(by_alias=True)
            for burst, rate in RATES.items():
                if values[burst] is not None and values[rate] is None:
                    raise ValueError(
                        f"quotas of {name}: {burst} has no effect without {rate}: set both, or "
                        "neither"
                    )

    def _check_due_capacity(self) -> None:
        if self.due_capacity is None:
            return
        if self.adopt.due:
            raise ValueError(
                "dueCapacity and adopt.due are mutually exclusive: the stack does not change an "
                "adopted table. Set the capacity of that table with `aws dynamodb update-table`, "
                "and remove dueCapacity"
            )
        least = READS_PER_SHARD * self.read_shards
        if self.due_capacity.reads < least:
            raise ValueError(
                f"dueCapacity.reads must be at least {least}, not {self.due_capacity.reads}: "
                f"{READS_PER_SHARD} for each of the {self.read_shards} readShards, because the "
                "polls of the watchers use 1.8 each second. For example "
                f'{{"writes": 30, "reads": {least}}}'
            )

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Self:
        """Read the settings from a CDK context. For the local target, its key `local` overrides.

        Raises:
            pydantic.ValidationError: A key is unknown, or a value is invalid.
        """
        ours = {
            key: value
            for key, value in context.items()
            if ":" not in key and not key.startswith("@") and key not in _OF_THE_CDK
        }
        local = _Overrides(local=ours.pop("local", {})).local
        if ours.get("target") == StackTarget.LOCAL:
            ours = {**ours, **local}
        return cls.model_validate(ours)
