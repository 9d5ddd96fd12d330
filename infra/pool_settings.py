"""The settings of a pool: its executors, their size, network and packages."""

import json
import re
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from infra.call_settings import CallSettings
from infra.fargate_settings import FargateSettings
from infra.setting_types import (
    SQS_VISIBILITY_LIMIT,
    Duration,
    Lease,
    Principals,
    StrictSettings,
    iso8601,
)
from nextfire.domain.egress import OPEN, Egress, EgressMode
from nextfire.domain.ids import TENANT
from nextfire.domain.packages import PackagePolicy, check_index

LAMBDA_LIMIT = timedelta(minutes=15)
_EXECUTOR_MEMORY = 128
"""MiB of a function or a task that are reserved for the executor."""
_MIN_SCRIPT_MEMORY = 64
_WORKER_SCRIPT_MEMORY = 2048
EXECUTOR_MARGIN = timedelta(minutes=1)
"""Part of an executor's timeout that a run may not use: reserved to record the run's end."""

_OF_LAMBDA = {
    "batch_size": "remove it",
    "max_concurrency": "set concurrency, and with Fargate fargate.maxTasks",
    "memory": "set fargate.memory",
}
_OF_WORKERS = {"concurrency": "set maxConcurrency"}
"""Settings that the other executor ignores, with what to do there instead."""
MAX_POLICY_BYTES = 2_000
"""Maximum bytes of a pool's `packagePolicy` as JSON."""


def _egress(value: object) -> object:
    if value in (EgressMode.OPEN, EgressMode.NONE):
        return Egress.parse(str(value))
    if isinstance(value, list) and all(isinstance(host, str) for host in value):
        return Egress.listed(*value)
    raise ValueError(
        f'egress must be "open", "none" or a list of hosts, not {value!r}: '
        'for one host use ["api.example.com"]'
    )


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


_ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+$"
_PUBLIC_KEY = r"^ed25519:[A-Za-z0-9+/]{43}=$"
_SECRET_ARN = re.compile(
    r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:([\w/+=.@-]+-[A-Za-z0-9]{6})"
)
_PARAMETER_ARN = re.compile(r"arn:aws[a-z-]*:ssm:[a-z0-9-]+:[0-9]{12}:parameter/([A-Za-z0-9_./-]+)")


class VpcSettings(StrictSettings):
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
    """Security groups of `vpcId`. Default: one that allows only outbound
    HTTPS."""


class PoolSettings(CallSettings):
    """A pool: its queue and its executors."""

    executor: Literal["lambda", "worker"]
    """`lambda`, or `worker` for processes that poll the queue."""
    tenants: (
        Annotated[
            tuple[Annotated[str, StringConstraints(pattern=rf"^{TENANT.pattern}$")], ...],
            Field(min_length=1, max_length=16),
        ]
        | None
    ) = None
    """The tenants that may use the pool; for others, it does not exist. Default: all."""
    memory: Annotated[int, Field(ge=128, le=10_240)] = 512
    """Memory of a Lambda executor in MiB."""
    batch_size: Annotated[int, Field(ge=1, le=10)] | None = None
    """Maximum number of messages per invocation of a Lambda executor. Default: 1; for calls, which
    are made concurrently, 10."""
    max_concurrency: Annotated[int, Field(ge=2, le=1000)] | None = 50
    """Maximum concurrency of a Lambda executor; lower if `accountConcurrency` requires it."""
    max_backlog: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Maximum number of messages in the queue, in flight or not; other due runs wait in the
    table."""
    timeout: Duration | None = None
    """Maximum time of an executor for a batch; a run's timeout is at most a minute
    less. Default: 15 minutes on Lambda, 11 hours and a minute on workers."""
    lease: Lease | None = None
    """How long an executor of the pool owns a run without a heartbeat. Default: the stack's."""
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    """Concurrent runs of each worker process."""
    isolation: Literal["process", "task"] = "process"
    """The isolation of each run: its own processes, or a whole Fargate task (`task`)."""
    job_role: Annotated[str, StringConstraints(pattern=_ROLE_ARN)] | None = None
    """The IAM role of the pool's scripts. Default: they have no credentials."""
    packages: Literal["inline", "none"] | None = None
    """`inline`: packages that scripts declare inline (PEP 723) are installed; on workers only.
    Default: `inline` on workers, `none` on Lambda."""
    package_index: (
        Annotated[str, StringConstraints(pattern=r"^\S+$"), AfterValidator(check_index)] | None
    ) = None
    """URL of the package index, without credentials. Default: the public index."""
    package_index_secret: Annotated[str, AfterValidator(_index_secret)] | None = None
    """ARN of the secret or parameter with the credentials of `packageIndex`."""
    package_policy: PackagePolicy | None = None
    """The packages that may be installed. Default: all that have a wheel."""
    trusted_signers: (
        Annotated[
            tuple[Annotated[str, StringConstraints(pattern=_PUBLIC_KEY)], ...],
            Field(min_length=1, max_length=8),
        ]
        | None
    ) = None
    """Public keys. The pool runs only scripts signed by one of them. Default: it
    runs all scripts."""
    script_memory: Annotated[int, Field(ge=32)] | None = None
    """MiB that each process of a script may allocate. Default: on workers 2048, or what a smaller
    task leaves; on Lambda `memory` less 128."""

    script_start: Literal["fork", "exec"] = "fork"
    """`fork`: scripts of a tenant that start often are forks of an interpreter that has started,
    which saves half of their CPU. `exec`: each script starts its own interpreter, with its own
    seed of string hashes and layout of memory. Default: `fork`."""
    egress: Annotated[Egress, BeforeValidator(_egress)] = OPEN
    """The hosts that scripts can reach: all (`open`), none (`none`), or a list. Default: `open`."""
    metadata: Literal["closed", "open"] | None = None
    """`closed`: workers that run as root block scripts from the machine's metadata addresses; other
    workers log that they cannot. Default: `closed`."""
    vpc: VpcSettings | None = None
    """The VPC of a Lambda executor. Default: Lambda's own network, with internet access."""
    fargate: FargateSettings | None = None
    """The Fargate workers of the pool. Default: the stack runs no workers."""
    worker_principals: Principals | None = None
    """IAM roles and users that may assume the pool's worker role, in addition to ECS tasks of the
    stack's account and region. At most 1,600 bytes as JSON.
    """

    @property
    def batch_size_or_default(self) -> int:
        """`batch_size`, by default 10 for calls."""
        return self.batch_size or (10 if self.targets == "calls" else 1)

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
            memory = (
                self.fargate.memory - _EXECUTOR_MEMORY if self.fargate else _WORKER_SCRIPT_MEMORY
            )
            return min(memory, _WORKER_SCRIPT_MEMORY)
        return max(self.memory - _EXECUTOR_MEMORY, _MIN_SCRIPT_MEMORY)

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
        shortens it to its lease when a run has taken a second, so this value matters only if the
        executor dies before that.
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
        if len(self.package_policy_json or "") > MAX_POLICY_BYTES:
            raise ValueError(
                f"packagePolicy must have at most {MAX_POLICY_BYTES} bytes as JSON, because the "
                "stack output that contains it is limited to 4 KB: list fewer packages in allow"
            )
        return self

    @model_validator(mode="after")
    def _check_executor(self) -> Self:
        on_lambda = self.executor == "lambda"
        for name, remedy in (_OF_WORKERS if on_lambda else _OF_LAMBDA).items():
            if name in self.model_fields_set:
                kind = "worker" if on_lambda else "lambda"
                raise ValueError(f"{to_camel(name)} applies to {kind} pools only: {remedy}")
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
