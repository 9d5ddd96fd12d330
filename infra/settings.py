"""The deployment's settings: the typed cdk.json context.

Context keys that contain a colon or start with `@` belong to the CDK and are ignored. Any other key
that is not a setting is an error. `-c key=value` on the command line overrides cdk.json; structured
values are JSON. Durations are ISO 8601.
"""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    model_validator,
)
from pydantic.alias_generators import to_camel

from nextfire.domain.egress import OPEN, Egress, EgressMode
from nextfire.domain.iam_rules import IamRule
from nextfire.domain.packages import PackagePolicy, check_index
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas

MIN_LIFE = timedelta(minutes=2)
LAMBDA_LIMIT = timedelta(minutes=15)
SQS_VISIBILITY_LIMIT = timedelta(hours=12)
OUTPUT_RETENTION = timedelta(days=97)
"""Longer than the lifetime of run records, which are removed some days after 90 days."""
_OWN_MEMORY = 128
"""MiB of a function or a task that are reserved for the executor."""
_LEAST_SCRIPT_MEMORY = 64
_WORKER_SCRIPT_MEMORY = 2048
EXECUTOR_MARGIN = timedelta(minutes=1)
"""Part of an executor's timeout that a run may not use: reserved to record the run's end."""

_MOST_OF_TENANTS = 2_000
"""Maximum bytes of tenant settings in a function's environment, which has 4 KB in total."""

_MOST_OF_A_POLICY = 2_000
"""Maximum bytes of a pool's `packagePolicy` as JSON."""
_MOST_OF_RULES = 1_000
"""Maximum bytes of IAM rules in a function's environment."""

_LOG_RETENTIONS = {
    timedelta(days=days): retention
    for days, retention in {
        1: logs.RetentionDays.ONE_DAY,
        3: logs.RetentionDays.THREE_DAYS,
        7: logs.RetentionDays.ONE_WEEK,
        14: logs.RetentionDays.TWO_WEEKS,
        30: logs.RetentionDays.ONE_MONTH,
        90: logs.RetentionDays.THREE_MONTHS,
        180: logs.RetentionDays.SIX_MONTHS,
        365: logs.RetentionDays.ONE_YEAR,
        731: logs.RetentionDays.TWO_YEARS,
    }.items()
}


class Target(StrEnum):
    """The deployment target."""

    AWS = "aws"
    LOCAL = "local"
    """MiniStack on this machine: the machine's architecture and Python, the caller's
    credentials."""


class Auth(StrEnum):
    """How the API authenticates callers."""

    KEYS = "keys"
    """API keys, which the API issues and stores itself."""
    IAM = "iam"
    """SigV4: roles and users of this account; `iam` maps them to tenants."""
    JWT = "jwt"
    """Tokens of an OIDC issuer; a claim holds the tenant."""


def iso8601(duration: timedelta) -> str:
    """Format *duration* for the functions' environment, for example `PT2M10S`."""
    return str(TypeAdapter(timedelta).dump_python(duration, mode="json"))


def _whole_seconds(duration: timedelta) -> timedelta:
    if duration <= timedelta(0) or duration.microseconds:
        raise ValueError("use a duration of one or more whole seconds, such as PT60S")
    return duration


def _whole_minutes(duration: timedelta) -> timedelta:
    if duration % timedelta(minutes=1):
        raise ValueError("EventBridge rules have minutes: use whole minutes, such as PT15M")
    return duration


def _whole_days(duration: timedelta) -> timedelta:
    if duration % timedelta(days=1):
        raise ValueError("S3 object locks have days: use whole days, such as P365D")
    return duration


def _known_retention(duration: timedelta) -> timedelta:
    if duration not in _LOG_RETENTIONS:
        days = ", ".join(f"P{known.days}D" for known in _LOG_RETENTIONS)
        raise ValueError(
            f"CloudWatch Logs supports only fixed retention periods: use one of {days}"
        )
    return duration


def _json_if_text(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


def _egress(value: object) -> object:
    if isinstance(value, str):
        if value not in {EgressMode.OPEN, EgressMode.NONE}:
            raise ValueError(
                f'egress must be "open", "none" or a list of hosts, not {value!r}: '
                'for one host use ["api.example.com"]'
            )
        return Egress.parse(value)
    if isinstance(value, list) and all(isinstance(host, str) for host in value):
        return Egress.listed(*value)
    return value


def _index_secret(arn: str) -> str:
    match = _SECRET_ARN.fullmatch(arn) or _PARAMETER_ARN.fullmatch(arn)
    if match is None:
        raise ValueError(
            "packageIndexSecret must be the full ARN of a secret, with its suffix of six "
            "characters (arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX), or of a "
            "parameter (arn:aws:ssm:REGION:ACCOUNT:parameter/NAME)"
        )
    if match[1].startswith("nextfire/"):
        raise ValueError(
            "packageIndexSecret must not be under nextfire/: jobs could read it with target.env"
        )
    return arn


Duration = Annotated[timedelta, AfterValidator(_whole_seconds)]
_ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+$"
_PUBLIC_KEY = r"^ed25519:[A-Za-z0-9+/]{43}=$"
_SECRET_ARN = re.compile(
    r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:([\w/+=.@-]+-[A-Za-z0-9]{6})"
)
_PARAMETER_ARN = re.compile(r"arn:aws[a-z-]*:ssm:[a-z0-9-]+:[0-9]{12}:parameter/([A-Za-z0-9_./-]+)")
_PRINCIPAL_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[\w+=,.@/-]+$"
PoolName = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=32)
]


class _Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,  # the reference page is made of them
    )


_MEMORY_OF_CPU = {
    256: [512, 1024, 2048],
    512: range(1024, 4096 + 1, 1024),
    1024: range(2048, 8192 + 1, 1024),
    2048: range(4096, 16_384 + 1, 1024),
    4096: range(8192, 30_720 + 1, 1024),
    8192: range(16_384, 61_440 + 1, 4096),
    16_384: range(32_768, 122_880 + 1, 8192),
}
"""Memory sizes (MiB) that Fargate supports, by CPU (1024ths of a core)."""


class FargateSettings(_Settings):
    """Workers that the stack runs as Fargate tasks."""

    cpu: Literal[256, 512, 1024, 2048, 4096, 8192, 16_384] = 1024
    """CPU of a task, in 1024ths of a core."""
    memory: int = 4096
    """Memory of a task in MiB; the supported sizes depend on `cpu`."""
    min_tasks: Annotated[int, Field(ge=0, le=1000)] = 0
    """Minimum number of tasks."""
    max_tasks: Annotated[int, Field(ge=1, le=1000)] = 4
    """Maximum number of tasks."""
    image: Annotated[str, StringConstraints(pattern=r"^[^\s:]+[^\s]*[:@][^\s/]+$")] | None = None
    """The worker's image with a tag or digest; None to build it during deployment."""
    vpc_id: Annotated[str, StringConstraints(pattern=r"^vpc-[0-9a-f]+$")] | None = None
    """The VPC of the tasks; None to create a VPC with public subnets only."""
    subnet_ids: tuple[Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]+$")], ...] = ()
    """Subnets of `vpcId`."""
    assign_public_ip: bool = True
    """Whether tasks get a public IP to reach AWS; False if the subnets have a NAT or endpoints."""

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.memory not in _MEMORY_OF_CPU[self.cpu]:
            offered = ", ".join(str(memory) for memory in _MEMORY_OF_CPU[self.cpu])
            raise ValueError(f"with cpu {self.cpu}, memory must be one of {offered}")
        if self.min_tasks > self.max_tasks:
            raise ValueError("minTasks must be at most maxTasks")
        if (self.vpc_id is None) != (not self.subnet_ids):
            raise ValueError("vpcId and subnetIds belong together: set both, or neither")
        if self.vpc_id is None and not self.assign_public_ip:
            raise ValueError(
                "assignPublicIp must be true in the stack's own VPC, which has no NAT: tasks would "
                "have no network access. Or set vpcId and subnetIds"
            )
        return self


class VpcSettings(_Settings):
    """The VPC to which a Lambda executor is attached."""

    vpc_id: Annotated[str, StringConstraints(pattern=r"^vpc-[0-9a-f]+$")]
    """An existing VPC."""
    subnet_ids: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]+$")], ...],
        Field(min_length=1, max_length=16),
    ]
    """Private subnets of `vpcId`."""
    security_group_ids: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-f]+$")], ...],
        Field(max_length=5),
    ] = ()
    """Security groups of `vpcId`; empty to create one that allows only outbound HTTPS."""


class PoolSettings(_Settings):
    """A pool: its queue and its executors."""

    executor: Literal["lambda", "worker"]
    """`lambda`, or `worker` for processes that poll the queue."""
    memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of a Lambda executor in MiB."""
    batch_size: Annotated[int, Field(ge=1, le=10)] = 1
    """Maximum number of messages per invocation of a Lambda executor."""
    max_concurrency: Annotated[int, Field(ge=2, le=1000)] | None = 50
    """Maximum concurrency of a Lambda executor; the account's other functions use the rest."""
    max_backlog: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Maximum number of messages in the queue; other due runs wait in the table."""
    timeout: Duration | None = None
    """Maximum time of an executor for a batch; None for the maximum of its kind."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    """Concurrent runs of each worker process."""
    isolation: Literal["process", "task"] = "process"
    """The isolation of each run: its own processes, or a whole Fargate task (`task`)."""
    job_role: Annotated[str, StringConstraints(pattern=_ROLE_ARN)] | None = None
    """The IAM role of the pool's scripts; None if they get no credentials."""
    packages: Literal["inline", "none"] | None = None
    """Whether to install packages that scripts declare inline (PEP 723)."""
    package_index: (
        Annotated[str, StringConstraints(pattern=r"^\S+$"), AfterValidator(check_index)] | None
    ) = None
    """URL of the package index, without credentials; None for the public index."""
    package_index_secret: Annotated[str, AfterValidator(_index_secret)] | None = None
    """ARN of the secret or parameter with the credentials of `packageIndex`."""
    package_policy: PackagePolicy | None = None
    """The packages that may be installed; None for all that have a wheel."""
    trusted_signers: (
        Annotated[
            tuple[Annotated[str, StringConstraints(pattern=_PUBLIC_KEY)], ...],
            Field(min_length=1, max_length=8),
        ]
        | None
    ) = None
    """Public keys. The pool runs only scripts signed by one of them; None to run all scripts."""
    script_memory: Annotated[int, Field(ge=32)] | None = None
    """MiB that each process of a script may allocate."""

    egress: Annotated[Egress, BeforeValidator(_egress)] = OPEN
    """The network access of scripts: `open`, `none`, or a list of hosts."""
    metadata: Literal["closed", "open"] | None = None
    """Whether workers block scripts from the machine's metadata addresses; None for `closed`."""
    vpc: VpcSettings | None = None
    """The VPC of a Lambda executor; None for Lambda's own network, with internet access."""
    fargate: FargateSettings | None = None
    """The Fargate workers of the pool; None if the stack runs no workers."""
    worker_principals: (
        tuple[Annotated[str, StringConstraints(pattern=_PRINCIPAL_ARN)], ...] | None
    ) = None
    """IAM roles and users that may assume the pool's worker role, in addition to ECS tasks of the
    stack's account and region.
    """

    @property
    def slots(self) -> int:
        """Concurrent runs of each worker process: `concurrency`, or 1 with isolation by task."""
        return 1 if self.isolation == "task" else self.concurrency

    @property
    def packages_or_default(self) -> str:
        """`packages`, by default inline for workers; Lambda functions lack the time and space."""
        return self.packages or ("none" if self.executor == "lambda" else "inline")

    @property
    def metadata_or_default(self) -> str:
        """`metadata`, by default closed for workers; Lambda functions have no such addresses."""
        return self.metadata or ("open" if self.executor == "lambda" else "closed")

    @property
    def package_policy_json(self) -> str | None:
        """`package_policy` in the format of the executors' environment."""
        policy = self.package_policy
        return None if policy is None else policy.model_dump_json(by_alias=True)

    @property
    def trusted_signers_json(self) -> str | None:
        """`trusted_signers` in the format of the executors' environment; None if not set."""
        return json.dumps(self.trusted_signers) if self.trusted_signers else None

    @property
    def script_memory_or_default(self) -> int:
        """`script_memory`, by default the executor's memory minus its own share; for workers at
        most 2 GiB.
        """
        if self.script_memory is not None:
            return self.script_memory
        if self.executor == "worker":
            memory = self.fargate.memory - _OWN_MEMORY if self.fargate else _WORKER_SCRIPT_MEMORY
            return min(memory, _WORKER_SCRIPT_MEMORY)
        return max(self.memory - _OWN_MEMORY, _LEAST_SCRIPT_MEMORY)

    @property
    def work_limit(self) -> timedelta:
        """The executor's timeout, after which Lambda kills a Lambda executor."""
        longest = LAMBDA_LIMIT if self.executor == "lambda" else timedelta(hours=11, minutes=1)
        return self.timeout or longest

    @property
    def longest_run(self) -> timedelta:
        """The maximum timeout of a job in this pool."""
        return self.work_limit - EXECUTOR_MARGIN

    @property
    def visibility(self) -> timedelta:
        """The visibility timeout of the queue.

        Lambda rejects a visibility timeout shorter than the function's timeout. An executor
        shortens it to its lease as soon as it has the message, so this value matters only if the
        executor dies before its claim.
        """
        return self.work_limit if self.executor == "lambda" else timedelta(minutes=1)

    @model_validator(mode="after")
    def _check_timeout(self) -> Self:
        limit = LAMBDA_LIMIT if self.executor == "lambda" else SQS_VISIBILITY_LIMIT
        if not EXECUTOR_MARGIN < self.work_limit <= limit:
            raise ValueError(
                f"timeout of a {self.executor} pool must be more than {iso8601(EXECUTOR_MARGIN)} "
                f"and at most {iso8601(limit)}"
            )
        return self

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if self.egress.mode is EgressMode.NONE and self.job_role is not None:
            raise ValueError(
                'egress "none" and jobRole are mutually exclusive: scripts without network cannot '
                "use a role. Remove one of them, or list the hosts that scripts need"
            )
        own_hosts = self.executor == "worker" and self.fargate is None
        if self.egress.mode is EgressMode.LISTED and not own_hosts:
            host = "Fargate" if self.fargate else "Lambda"
            raise ValueError(
                "egress can list hosts only if workers run as root on machines of your own: "
                f'{host} does not allow separate networks for scripts. Set egress to "none", or to '
                '"open" with a VPC, whose security groups and firewall filter the traffic'
            )
        if self.executor == "worker" and self.vpc is not None:
            raise ValueError(
                "vpc applies to lambda pools only: workers use the network of their machine, and "
                "Fargate tasks that of fargate.vpcId"
            )
        if self.executor == "lambda" and self.metadata is not None:
            raise ValueError(
                "metadata applies to worker pools only: Lambda has no metadata addresses"
            )
        return self

    @model_validator(mode="after")
    def _check_isolation(self) -> Self:
        if self.isolation != "task":
            return self
        if self.executor == "lambda":
            raise ValueError(
                'isolation "task" is not possible on Lambda: consecutive invocations share an '
                "environment, and a runtime that exits is restarted in it with the same /tmp. Run "
                'the pool on Fargate: {"executor": "worker", "isolation": "task", "fargate": {}}'
            )
        if not self.fargate:
            raise ValueError(
                'isolation "task" needs fargate: the stack starts a new task for each run. For '
                'example {"executor": "worker", "isolation": "task", "fargate": {}}'
            )
        if "concurrency" in self.model_fields_set and self.concurrency != 1:
            raise ValueError(
                f'concurrency must be 1 with isolation "task", not {self.concurrency}: a task '
                "executes one run. Remove concurrency; fargate.maxTasks limits concurrent runs"
            )
        return self

    @model_validator(mode="after")
    def _check_packages(self) -> Self:
        if self.package_index_secret is not None and self.package_index is None:
            raise ValueError("packageIndexSecret requires packageIndex: set both, or neither")
        if len(self.package_policy_json or "") > _MOST_OF_A_POLICY:
            raise ValueError(
                f"packagePolicy must have at most {_MOST_OF_A_POLICY} bytes as JSON, because the "
                "stack output that contains it is limited to 4 KB: list fewer packages in allow"
            )
        return self

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.executor == "lambda" and self.fargate is not None:
            raise ValueError('fargate applies to worker pools only: set "executor": "worker"')
        if self.executor == "lambda" and self.worker_principals:
            raise ValueError(
                'workerPrincipals applies to worker pools only: set "executor": "worker"'
            )
        if self.executor == "lambda" and self.packages == "inline":
            raise ValueError(
                "packages of a lambda pool cannot be inline: use a worker pool, or add the "
                "packages to the script's archive"
            )
        return self


class JwtSettings(_Settings):
    """The tokens that the API accepts with `auth` jwt."""

    issuer: Annotated[str, StringConstraints(pattern=r"^https://[^\s?#]+$")]
    """The tokens' `iss`; also the base URL for the discovery of the signing keys."""
    audience: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(min_length=1)
    ]
    """Accepted values of a token's `aud` or `client_id`."""
    tenant_claim: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:./-]{1,128}$")]
    """The claim that holds the tenant."""


def _checked_rules(rules: tuple[IamRule, ...] | None) -> tuple[IamRule, ...] | None:
    if rules is None:
        return None
    if not rules:
        raise ValueError("iam must have a rule. To use the account as the tenant, remove iam")
    text = json.dumps([rule.model_dump(mode="json", by_alias=True) for rule in rules])
    if len(text) > _MOST_OF_RULES:
        raise ValueError(
            f"iam must have at most {_MOST_OF_RULES} bytes as JSON, because a function's "
            "environment is limited to 4 KB: use patterns such as team-etl-*"
        )
    return rules


_KEY_ARN = r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$"
_STREAM_ARN = r"^arn:aws[a-z-]*:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[\w.-]+/stream/[0-9T:.-]+$"
StreamArn = Annotated[str, StringConstraints(pattern=_STREAM_ARN)]


class AdoptedStreams(_Settings):
    """Streams of adopted tables, which feed the audit chain."""

    jobs: StreamArn | None = None
    """Stream of the jobs table."""
    runs: StreamArn | None = None
    """Stream of the runs table."""
    keys: StreamArn | None = None
    """Stream of the table of API keys."""
    requests: StreamArn | None = None
    """Stream of the requests table."""


class KmsSettings(_Settings):
    """An existing customer-managed key."""

    key_arn: Annotated[str, StringConstraints(pattern=_KEY_ARN)]
    """ARN of the key."""


def _kms_if_json(value: object) -> object:
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


class AuditLockSettings(_Settings):
    """The object lock of the audit chain: objects cannot be changed or deleted for `period`."""

    mode: Literal["GOVERNANCE", "COMPLIANCE"]
    """GOVERNANCE: `s3:BypassGovernanceRetention` overrides the lock. COMPLIANCE: nothing does."""
    period: Annotated[Duration, AfterValidator(_whole_days)]
    """How long an object is locked, in whole days."""


class Adopted(_Settings):
    """Physical names of existing stores that the stack uses instead of creating them."""

    jobs: str | None = None
    """Name of the jobs table."""
    due: str | None = None
    """Name of the table of due entries."""
    runs: str | None = None
    """Name of the runs table."""
    control: str | None = None
    """Name of the control table."""
    keys: str | None = None
    """Name of the table of API keys."""
    requests: str | None = None
    """Name of the requests table."""
    scripts: str | None = None
    """Name of the scripts bucket."""
    outputs: str | None = None
    """Name of the outputs bucket."""
    audit: str | None = None
    """The bucket of an existing audit chain, which the stack continues."""
    streams: AdoptedStreams = AdoptedStreams()
    """ARNs of the streams of adopted tables."""


class Settings(_Settings):
    """All settings of a deployment."""

    target: Target = Target.AWS
    """Where the stack is deployed: `aws`, or `local` for MiniStack on this machine."""
    pools: Annotated[
        dict[PoolName, PoolSettings], BeforeValidator(_json_if_text), Field(min_length=1)
    ] = Field(default_factory=lambda: {"default": PoolSettings(executor="lambda")})
    """The pools, by name."""
    write_shards: Annotated[int, Field(ge=1, le=999)] = 4
    """Number of shards over which writers spread due entries. Increase `readShards` first."""
    read_shards: Annotated[int, Field(ge=1, le=999)] = 4
    """Number of shards that watchers read; at least `writeShards`."""
    groups: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of watcher groups, which divide the shards among themselves."""
    tenant_weights: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=1000)]], BeforeValidator(_json_if_text)
    ] = Field(default_factory=dict)
    """Shares of tenants in dispatch when capacity is limited; default 1."""
    quotas: Annotated[TenantQuotas, BeforeValidator(_json_if_text)] = NO_QUOTAS
    """Quotas of tenants: `default`, and exceptions by tenant in `tenants`."""
    life: Duration = timedelta(seconds=125)
    """Lifetime of one watcher invocation; more than two minutes, so that two overlap."""
    lease: Duration = timedelta(seconds=60)
    """How long a worker owns a run without a heartbeat."""
    watcher_memory: Annotated[int, Field(ge=128, le=10_240)] = 144
    """Memory in MiB. CPU is proportional to it: 144 MiB is a twelfth of a core."""
    api_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the API's function, in MiB."""
    auth: Auth = Auth.KEYS
    """How the API authenticates callers: API keys, IAM signatures or JWTs."""
    jwt: Annotated[JwtSettings | None, BeforeValidator(_json_if_text)] = None
    """Required with `auth` jwt, otherwise invalid."""
    iam: Annotated[
        tuple[IamRule, ...] | None, BeforeValidator(_json_if_text), AfterValidator(_checked_rules)
    ] = None
    """Rules that map roles to a tenant and scopes, with `auth` iam; the first match wins. None: the
    tenant is the account, with all scopes.
    """
    authorizer_memory: Annotated[int, Field(ge=128, le=10_240)] = 256
    """Memory of the function that checks API keys, in MiB."""
    audit_every: Duration = timedelta(days=1)
    """How often the auditor checks each job."""
    auditor_wake_every: Annotated[Duration, AfterValidator(_whole_minutes)] = timedelta(minutes=15)
    """How often the auditor is invoked to continue or start an audit."""
    auditor_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the auditor, in MiB."""
    throttle_rate: Annotated[int, Field(ge=1)] = 200
    """API requests per second, over all callers."""
    throttle_burst: Annotated[int, Field(ge=1)] = 400
    """API requests at once, over all callers."""
    log_retention: Annotated[Duration, AfterValidator(_known_retention)] = timedelta(days=30)
    """Retention of the other logs."""
    audit_retention: Annotated[Duration, AfterValidator(_known_retention)] = timedelta(days=365)
    """Retention of the API function's log, which holds audit events, and of the access log."""
    kms: Annotated[KmsSettings | Literal["create"] | None, BeforeValidator(_kms_if_json)] = None
    """The KMS key of tables, queues, buckets and logs; None for AWS-managed keys."""
    audit_lock: Annotated[AuditLockSettings | None, BeforeValidator(_json_if_text)] = None
    """Object lock of the audit chain; None if its objects may be deleted."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The level of the functions' logs."""
    aws_client: Literal["lean", "boto3"] = "lean"
    """The client of DynamoDB and SQS."""
    alarm_topic_arn: str | None = None
    """The SNS topic that the alarms notify."""
    remove_data: bool = False
    """Whether deleting the stack also deletes tables, scripts, outputs and the audit log."""
    adopt: Annotated[Adopted, BeforeValidator(_json_if_text)] = Adopted()
    """Existing stores that the stack uses instead of creating them."""
    pool_access: Literal["own", "all"] = "own"
    """The pools whose scripts, outputs and secrets an executor may access: `own`. Use `all` only
    for the update from a version that did not separate pools.
    """

    @property
    def signatures(self) -> bool:
        """Whether a pool verifies signatures, for which the functions need another library."""
        return any(pool.trusted_signers for pool in self.pools.values())

    @property
    def retention(self) -> logs.RetentionDays:
        return _LOG_RETENTIONS[self.log_retention]

    @property
    def quotas_json(self) -> str:
        """`quotas` in the format of the functions' environment: fields that were set, even null."""
        return self.quotas.model_dump_json(by_alias=True, exclude_unset=True)

    @property
    def audit_days(self) -> logs.RetentionDays:
        return _LOG_RETENTIONS[self.audit_retention]

    @property
    def audit_removal(self) -> RemovalPolicy:
        """The removal policy of audit events, which by default outlive the stack."""
        return RemovalPolicy.DESTROY if self.remove_data else RemovalPolicy.RETAIN

    @property
    def enforce_ssl(self) -> bool:
        """Whether to deny requests without TLS. MiniStack enforces the policy and has no TLS."""
        return self.target is Target.AWS

    @property
    def watcher_timeout(self) -> timedelta:
        """The timeout of a hung watcher. Other watchers end by themselves after `life`."""
        return self.life + timedelta(seconds=20)

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.read_shards < self.write_shards:
            raise ValueError(
                "readShards must be at least writeShards; otherwise some entries are never read"
            )
        if self.groups > self.read_shards:
            raise ValueError("groups must not exceed readShards: a group without shards is idle")
        if len(self.quotas_json) + len(json.dumps(self.tenant_weights)) > _MOST_OF_TENANTS:
            raise ValueError(
                f"quotas and tenantWeights must have at most {_MOST_OF_TENANTS} bytes as JSON, "
                "because a function's environment is limited to 4 KB: move common values into the "
                "default"
            )
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
        if self.audit_every < self.auditor_wake_every:
            raise ValueError(
                "auditEvery must be at least auditorWakeEvery: audits start only when the auditor "
                "is invoked"
            )
        if self.adopt.due and not self.adopt.control:
            raise ValueError(
                "adopt.due requires adopt.control: without its cursors, watchers do not read the "
                "adopted entries"
            )
        return self

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Self:
        """Read the settings from a CDK context. For the local target, its key `local` overrides.

        Raises:
            pydantic.ValidationError: A key is unknown, or a value is invalid.
        """
        ours = {
            key: value
            for key, value in context.items()
            if ":" not in key and not key.startswith("@")
        }
        local = _json_if_text(ours.pop("local", {}))
        if ours.get("target") == Target.LOCAL and isinstance(local, dict):
            ours = {**ours, **local}
        return cls.model_validate(ours)
