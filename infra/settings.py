"""The deployment's settings: cdk.json context, typed.

Context keys that hold a colon or begin with `@` belong to the CDK and are passed over; any other
key that is not a setting is refused by name. `-c key=value` on the command line overrides
cdk.json; structured values are given as JSON. Durations are ISO 8601.
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
OUTPUTS_KEPT = timedelta(days=97)
"""Longer than the records that name them, which live 90 days and are removed days late."""
_OWN_MEMORY = 128
"""MiB of a function or a task that its scripts may not allocate: the executor's own."""
_LEAST_SCRIPT_MEMORY = 64
_WORKER_SCRIPT_MEMORY = 2048
EXECUTOR_MARGIN = timedelta(minutes=1)
"""Of an executor's timeout, what a run may not use: it is there to record how the run ended."""

_MOST_OF_TENANTS = 2_000
"""Bytes of a function's environment for what tenants have; the rest of its 4 KB is for us."""

_MOST_OF_A_POLICY = 2_000
"""Bytes of a pool's `packagePolicy` as JSON."""
_MOST_OF_RULES = 1_000
"""Bytes of a function's environment for the rules of roles."""

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
    """Where the app is deployed."""

    AWS = "aws"
    LOCAL = "local"
    """MiniStack on this machine: its architecture, its Python, the caller's own credentials."""


class Auth(StrEnum):
    """How the API finds out who calls."""

    KEYS = "keys"
    """By API keys, which it makes and keeps itself."""
    IAM = "iam"
    """By SigV4: roles and users of this account; `iam` maps them to tenants."""
    JWT = "jwt"
    """By tokens of an OIDC issuer; the tenant is a claim."""


def iso8601(duration: timedelta) -> str:
    """*duration* as the functions read it from their environment, such as `PT2M10S`."""
    return str(TypeAdapter(timedelta).dump_python(duration, mode="json"))


def _whole_seconds(duration: timedelta) -> timedelta:
    if duration <= timedelta(0) or duration.microseconds:
        raise ValueError("give a duration of one or more whole seconds, such as PT60S")
    return duration


def _whole_minutes(duration: timedelta) -> timedelta:
    if duration % timedelta(minutes=1):
        raise ValueError("EventBridge wakes by the minute: give whole minutes, such as PT15M")
    return duration


def _whole_days(duration: timedelta) -> timedelta:
    if duration % timedelta(days=1):
        raise ValueError("S3 locks objects by the day: give whole days, such as P365D")
    return duration


def _known_retention(duration: timedelta) -> timedelta:
    if duration not in _LOG_RETENTIONS:
        days = ", ".join(f"P{known.days}D" for known in _LOG_RETENTIONS)
        raise ValueError(f"CloudWatch Logs keeps logs for fixed periods; choose one of {days}")
    return duration


def _json_if_text(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


def _egress(value: object) -> object:
    if isinstance(value, str):
        if value not in {EgressMode.OPEN, EgressMode.NONE}:
            raise ValueError(
                f'egress must be "open", "none" or a list of hosts, not {value!r}: '
                'for one host give ["api.example.com"]'
            )
        return Egress.parse(value)
    if isinstance(value, list) and all(isinstance(host, str) for host in value):
        return Egress.listed(*value)
    return value


def _index_secret(arn: str) -> str:
    match = _SECRET_ARN.fullmatch(arn) or _PARAMETER_ARN.fullmatch(arn)
    if match is None:
        raise ValueError(
            "packageIndexSecret must be the whole ARN of a secret, with the six characters at its "
            "end (arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-XXXXXX), or of a parameter "
            "(arn:aws:ssm:REGION:ACCOUNT:parameter/NAME)"
        )
    if match[1].startswith("nextfire/"):
        raise ValueError(
            "packageIndexSecret must not be under nextfire/: a job could name it in target.env"
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
"""What Fargate offers: MiB of memory, by 1024ths of a core."""


class FargateSettings(_Settings):
    """Workers that the stack itself runs, as tasks on Fargate."""

    cpu: Literal[256, 512, 1024, 2048, 4096, 8192, 16_384] = 1024
    """Of a task, in 1024ths of a core."""
    memory: int = 4096
    """MiB of a task; what Fargate offers depends on `cpu`."""
    min_tasks: Annotated[int, Field(ge=0, le=1000)] = 0
    """Minimum number of tasks."""
    max_tasks: Annotated[int, Field(ge=1, le=1000)] = 4
    """Maximum number of tasks."""
    image: Annotated[str, StringConstraints(pattern=r"^[^\s:]+[^\s]*[:@][^\s/]+$")] | None = None
    """The worker's image with its tag or digest; None: it is built when the stack is deployed."""
    vpc_id: Annotated[str, StringConstraints(pattern=r"^vpc-[0-9a-f]+$")] | None = None
    """Where the tasks live; None: in a VPC of the stack, with public subnets only."""
    subnet_ids: tuple[Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]+$")], ...] = ()
    """Subnets of `vpcId`."""
    assign_public_ip: bool = True
    """How the tasks reach AWS from a public subnet; False where the subnets have another way."""

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.memory not in _MEMORY_OF_CPU[self.cpu]:
            offered = ", ".join(str(memory) for memory in _MEMORY_OF_CPU[self.cpu])
            raise ValueError(f"with cpu {self.cpu} Fargate offers as memory one of {offered}")
        if self.min_tasks > self.max_tasks:
            raise ValueError("minTasks must be at most maxTasks")
        if (self.vpc_id is None) != (not self.subnet_ids):
            raise ValueError("vpcId and subnetIds go together: give both, or neither")
        if self.vpc_id is None and not self.assign_public_ip:
            raise ValueError(
                "assignPublicIp must be true in the stack's own VPC, which has no NAT: without it "
                "a task reaches nothing; or give vpcId and subnetIds"
            )
        return self


class VpcSettings(_Settings):
    """Where a Lambda executor is attached to a network of yours."""

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
    """Security groups of `vpcId`; none: one of the pool's own, which lets HTTPS out."""


class PoolSettings(_Settings):
    """A pool: its queue, and who serves it."""

    executor: Literal["lambda", "worker"]
    """`lambda`, or `worker` for processes that poll the queue."""
    memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """MiB of a Lambda executor."""
    batch_size: Annotated[int, Field(ge=1, le=10)] = 1
    """Messages that one invocation of a Lambda executor takes."""
    max_concurrency: Annotated[int, Field(ge=2, le=1000)] | None = 50
    """Invocations of a Lambda executor at a time: what it leaves, the watcher and the API have."""
    max_backlog: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Messages that the queue may hold; what is due beyond that waits in the table."""
    timeout: Duration | None = None
    """How long an executor may work on a batch; by default the longest its kind allows."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    """Runs at a time of each worker process."""
    isolation: Literal["process", "task"] = "process"
    """What each run has for itself: its processes, or a whole Fargate task (`task`)."""
    job_role: Annotated[str, StringConstraints(pattern=_ROLE_ARN)] | None = None
    """The role that the pool's scripts act in; None: they have no credentials."""
    packages: Literal["inline", "none"] | None = None
    """Whether packages that a script names inline (PEP 723) are installed for it."""
    package_index: (
        Annotated[str, StringConstraints(pattern=r"^\S+$"), AfterValidator(check_index)] | None
    ) = None
    """Where they come from, instead of the public index; without credentials."""
    package_index_secret: Annotated[str, AfterValidator(_index_secret)] | None = None
    """ARN of the secret or the parameter that holds the credentials of `packageIndex`."""
    package_policy: PackagePolicy | None = None
    """Which of them are installed; None: any that has a wheel."""
    trusted_signers: (
        Annotated[
            tuple[Annotated[str, StringConstraints(pattern=_PUBLIC_KEY)], ...],
            Field(min_length=1, max_length=8),
        ]
        | None
    ) = None
    """Public keys; the pool runs only scripts that one of them signed. None: it runs any."""
    script_memory: Annotated[int, Field(ge=32)] | None = None
    """MiB that each process of a script may allocate."""

    egress: Annotated[Egress, BeforeValidator(_egress)] = OPEN
    """What scripts may reach on the network: `open`, `none`, or a list of hosts."""
    metadata: Literal["closed", "open"] | None = None
    """Whether workers close the metadata addresses of their machine to scripts; None: they do."""
    vpc: VpcSettings | None = None
    """The network that a Lambda executor is attached to; None: it reaches the internet."""
    fargate: FargateSettings | None = None
    """How the stack runs workers of the pool; None: it runs none."""
    worker_principals: (
        tuple[Annotated[str, StringConstraints(pattern=_PRINCIPAL_ARN)], ...] | None
    ) = None
    """IAM roles and users that may assume the pool's worker role; ECS tasks of the stack's account
    and region always may.
    """

    @property
    def slots(self) -> int:
        """Runs at a time of each worker process, as its isolation allows."""
        return 1 if self.isolation == "task" else self.concurrency

    @property
    def packages_or_default(self) -> str:
        """Workers install them; a Lambda function has neither the time nor the room."""
        return self.packages or ("none" if self.executor == "lambda" else "inline")

    @property
    def metadata_or_default(self) -> str:
        """A Lambda function has no metadata addresses to close."""
        return self.metadata or ("open" if self.executor == "lambda" else "closed")

    @property
    def package_policy_json(self) -> str | None:
        """`package_policy` as executors read it."""
        policy = self.package_policy
        return None if policy is None else policy.model_dump_json(by_alias=True)

    @property
    def trusted_signers_json(self) -> str | None:
        """`trusted_signers` as executors read them; None: the pool trusts none."""
        return json.dumps(self.trusted_signers) if self.trusted_signers else None

    @property
    def script_memory_or_default(self) -> int:
        """What the executor leaves of what is known of its memory; of a worker at most 2 GiB."""
        if self.script_memory is not None:
            return self.script_memory
        if self.executor == "worker":
            memory = self.fargate.memory - _OWN_MEMORY if self.fargate else _WORKER_SCRIPT_MEMORY
            return min(memory, _WORKER_SCRIPT_MEMORY)
        return max(self.memory - _OWN_MEMORY, _LEAST_SCRIPT_MEMORY)

    @property
    def work_limit(self) -> timedelta:
        """The executor's timeout; a Lambda executor is killed at it."""
        longest = LAMBDA_LIMIT if self.executor == "lambda" else timedelta(hours=11, minutes=1)
        return self.timeout or longest

    @property
    def longest_run(self) -> timedelta:
        """The longest timeout that a job of this pool may ask for."""
        return self.work_limit - EXECUTOR_MARGIN

    @property
    def visibility(self) -> timedelta:
        """How long a message stays hidden from others unless its executor says otherwise.

        SQS refuses a visibility shorter than the function's timeout. An executor shortens it to
        its lease as soon as it has the message, so this only bounds a claim that never came.
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
                'egress "none" and jobRole exclude each other: a role is of no use to scripts '
                "without network. Leave one of them out, or list the hosts that scripts need"
            )
        own_hosts = self.executor == "worker" and self.fargate is None
        if self.egress.mode is EgressMode.LISTED and not own_hosts:
            host = "Fargate" if self.fargate else "Lambda"
            raise ValueError(
                "egress can list hosts only where workers run as root on machines of your own: "
                f'{host} cannot give a script its own network. Set egress to "none"; or to '
                '"open" with a VPC, whose security groups and firewall decide'
            )
        if self.executor == "worker" and self.vpc is not None:
            raise ValueError(
                "vpc is for pools on Lambda: workers are in the network of their machine, and "
                "tasks in that of fargate.vpcId"
            )
        if self.executor == "lambda" and self.metadata is not None:
            raise ValueError("metadata is for pools of workers: Lambda has no metadata addresses")
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
                "carries out one run. Leave concurrency out; fargate.maxTasks limits the runs"
            )
        return self

    @model_validator(mode="after")
    def _check_packages(self) -> Self:
        if self.package_index_secret is not None and self.package_index is None:
            raise ValueError("packageIndexSecret needs packageIndex: credentials for which index?")
        if len(self.package_policy_json or "") > _MOST_OF_A_POLICY:
            raise ValueError(
                f"packagePolicy must have at most {_MOST_OF_A_POLICY} bytes as JSON: an output of "
                "the stack, which holds it, has 4 KB; name fewer packages in allow"
            )
        return self

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.executor == "lambda" and self.fargate is not None:
            raise ValueError('fargate is for pools of workers: give them "executor": "worker"')
        if self.executor == "lambda" and self.worker_principals:
            raise ValueError(
                'workerPrincipals is for pools of workers: give them "executor": "worker"'
            )
        if self.executor == "lambda" and self.packages == "inline":
            raise ValueError(
                "packages of a lambda pool must be none: serve the pool by workers, or put the "
                "packages into the script's archive"
            )
        return self


class JwtSettings(_Settings):
    """Whose tokens the API takes, with `auth` jwt."""

    issuer: Annotated[str, StringConstraints(pattern=r"^https://[^\s?#]+$")]
    """As the tokens' `iss` has it; its keys are found through it."""
    audience: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(min_length=1)
    ]
    """A token's `aud` or `client_id` is one of these."""
    tenant_claim: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:./-]{1,128}$")]
    """The claim that holds the tenant."""


def _checked_rules(rules: tuple[IamRule, ...] | None) -> tuple[IamRule, ...] | None:
    if rules is None:
        return None
    if not rules:
        raise ValueError("iam must have a rule, or be left out: then the tenant is the account")
    text = json.dumps([rule.model_dump(mode="json", by_alias=True) for rule in rules])
    if len(text) > _MOST_OF_RULES:
        raise ValueError(
            f"iam must have at most {_MOST_OF_RULES} bytes as JSON: a function's environment has "
            "4 KB; use patterns such as team-etl-*"
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
    """A customer-managed key that exists already."""

    key_arn: Annotated[str, StringConstraints(pattern=_KEY_ARN)]
    """ARN of the key."""


def _kms_if_json(value: object) -> object:
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


class AuditLockSettings(_Settings):
    """How long an object of the audit chain can neither be changed nor removed."""

    mode: Literal["GOVERNANCE", "COMPLIANCE"]
    """GOVERNANCE: not without `s3:BypassGovernanceRetention`; COMPLIANCE: by no one."""
    period: Annotated[Duration, AfterValidator(_whole_days)]
    """How long an object is locked, in whole days."""


class Adopted(_Settings):
    """Physical names of stores that exist already and that this stack shall use, not create."""

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
    """The bucket of the audit chain, to be continued."""
    streams: AdoptedStreams = AdoptedStreams()
    """The ARNs of the streams of adopted tables."""


class Settings(_Settings):
    """Everything that a deployment may choose."""

    target: Target = Target.AWS
    """Where the stack is deployed: `aws`, or `local` for MiniStack on this machine."""
    pools: Annotated[
        dict[PoolName, PoolSettings], BeforeValidator(_json_if_text), Field(min_length=1)
    ] = Field(default_factory=lambda: {"default": PoolSettings(executor="lambda")})
    """The pools, by name."""
    write_shards: Annotated[int, Field(ge=1, le=999)] = 4
    """Shards that writers spread due entries over. Raise `readShards` first."""
    read_shards: Annotated[int, Field(ge=1, le=999)] = 4
    """Shards that watchers read; at least `writeShards`."""
    groups: Annotated[int, Field(ge=1, le=100)] = 1
    """Watcher groups; the shards are divided among them."""
    tenant_weights: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=1000)]], BeforeValidator(_json_if_text)
    ] = Field(default_factory=dict)
    """A tenant's part of the turns where not all can go at once; 1 where it is not named."""
    quotas: Annotated[TenantQuotas, BeforeValidator(_json_if_text)] = NO_QUOTAS
    """What a tenant may have at most: `default`, and by `tenants` what some have instead."""
    life: Duration = timedelta(seconds=125)
    """How long one invocation of a watcher lives; over two minutes, so that two overlap."""
    lease: Duration = timedelta(seconds=60)
    """How long a worker owns a run without a heartbeat."""
    watcher_memory: Annotated[int, Field(ge=128, le=10_240)] = 144
    """Memory brings computing power: 144 MiB are a twelfth of a core."""
    api_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the API's function, in MiB."""
    auth: Auth = Auth.KEYS
    """How the API authenticates callers: API keys, IAM signatures or JWTs."""
    jwt: Annotated[JwtSettings | None, BeforeValidator(_json_if_text)] = None
    """Needed by `auth` jwt, and by nothing else."""
    iam: Annotated[
        tuple[IamRule, ...] | None, BeforeValidator(_json_if_text), AfterValidator(_checked_rules)
    ] = None
    """Which tenant and scopes a role has, with `auth` iam; the first that matches counts. None: the
    tenant is the account, with all scopes.
    """
    authorizer_memory: Annotated[int, Field(ge=128, le=10_240)] = 256
    """Memory of the function that checks API keys, in MiB."""
    audit_every: Duration = timedelta(days=1)
    """How often the auditor visits each job."""
    auditor_wake_every: Annotated[Duration, AfterValidator(_whole_minutes)] = timedelta(minutes=15)
    """How often it is woken to go on with an audit, or to begin one."""
    auditor_memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of the auditor, in MiB."""
    throttle_rate: Annotated[int, Field(ge=1)] = 200
    """API requests per second, over all callers."""
    throttle_burst: Annotated[int, Field(ge=1)] = 400
    """API requests at once, over all callers."""
    log_retention: Annotated[Duration, AfterValidator(_known_retention)] = timedelta(days=30)
    """Retention of the other logs."""
    audit_retention: Annotated[Duration, AfterValidator(_known_retention)] = timedelta(days=365)
    """How long the API's own log, which holds the audit events, and its access log are kept."""
    kms: Annotated[KmsSettings | Literal["create"] | None, BeforeValidator(_kms_if_json)] = None
    """The key of tables, queues, buckets and logs; None: keys that AWS manages."""
    audit_lock: Annotated[AuditLockSettings | None, BeforeValidator(_json_if_text)] = None
    """Object lock on the audit chain; None: its objects can be removed."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The level of the functions' logs."""
    aws_client: Literal["lean", "boto3"] = "lean"
    """What calls DynamoDB and SQS."""
    alarm_topic_arn: str | None = None
    """An SNS topic that the alarms notify."""
    remove_data: bool = False
    """Deleting the stack deletes the tables, the scripts, the outputs and the audit log too."""
    adopt: Annotated[Adopted, BeforeValidator(_json_if_text)] = Adopted()
    """Existing stores that the stack uses instead of creating them."""
    pool_access: Literal["own", "all"] = "own"
    """The pools whose scripts, outputs and secrets an executor reaches: `own`; `all` only for
    the update from a version that did not separate pools.
    """

    @property
    def signatures(self) -> bool:
        """Whether a pool verifies signatures, for which the functions need a library more."""
        return any(pool.trusted_signers for pool in self.pools.values())

    @property
    def retention(self) -> logs.RetentionDays:
        return _LOG_RETENTIONS[self.log_retention]

    @property
    def quotas_json(self) -> str:
        """`quotas` as the functions read them: what is given, a null included."""
        return self.quotas.model_dump_json(by_alias=True, exclude_unset=True)

    @property
    def audit_days(self) -> logs.RetentionDays:
        return _LOG_RETENTIONS[self.audit_retention]

    @property
    def audit_removal(self) -> RemovalPolicy:
        """Who did what is to be known after a stack is gone, too."""
        return RemovalPolicy.DESTROY if self.remove_data else RemovalPolicy.RETAIN

    @property
    def enforce_ssl(self) -> bool:
        """Refuse requests without TLS; the loopback has none, and MiniStack obeys the policy."""
        return self.target is Target.AWS

    @property
    def watcher_timeout(self) -> timedelta:
        """A watcher ends by itself after its life; the timeout is for one that hangs."""
        return self.life + timedelta(seconds=20)

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.read_shards < self.write_shards:
            raise ValueError("readShards must be at least writeShards, or entries are never read")
        if self.groups > self.read_shards:
            raise ValueError("groups must not exceed readShards: a group without shards is idle")
        if len(self.quotas_json) + len(json.dumps(self.tenant_weights)) > _MOST_OF_TENANTS:
            raise ValueError(
                f"quotas and tenantWeights must have at most {_MOST_OF_TENANTS} bytes as JSON: "
                "a function's environment has 4 KB; put what most tenants have into the default"
            )
        if self.life < MIN_LIFE:
            raise ValueError(
                f"life must be at least {iso8601(MIN_LIFE)}: a watcher is woken each minute, and "
                "one must stand by while another works"
            )
        if self.watcher_timeout > LAMBDA_LIMIT:
            raise ValueError("life must be at most PT14M40S: a watcher is a Lambda function")
        if (self.auth is Auth.JWT) != (self.jwt is not None):
            raise ValueError(
                "jwt (issuer, audience, tenantClaim) goes with auth jwt: give both, or neither"
            )
        if self.iam and self.auth is not Auth.IAM:
            raise ValueError('iam (rules for roles) goes with "auth": "iam": leave it out')
        if self.audit_every < self.auditor_wake_every:
            raise ValueError(
                "auditEvery must be at least auditorWakeEvery: nobody begins it sooner"
            )
        if self.adopt.due and not self.adopt.control:
            raise ValueError("adopt.due needs adopt.control: without its cursors nobody reads it")
        return self

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Self:
        """Read the settings from a CDK context; on the local target its `local` part wins.

        Raises:
            pydantic.ValidationError: A key is unknown, or a value is not possible.
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
