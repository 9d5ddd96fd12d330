"""Settings from the environment, read once per function."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Json
from pydantic.alias_generators import to_camel

from nextfire.domain.audit_pass import MAX_SEGMENTS
from nextfire.domain.egress import OPEN, Egress
from nextfire.domain.iam_rules import IamRule
from nextfire.domain.packages import PackagePolicy, check_index
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.retention import DEFAULT_RETENTION, RunRetention

_PREFIX = "NEXTFIRE_"


class _Settings(BaseModel):
    """Base of all settings. ``NEXTFIRE_JOBS_TABLE`` sets the field ``jobs_table``. Durations are in
    ISO 8601.
    """

    # A function reads only its own settings class, so validators of the others are not built.
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)

    @classmethod
    def read(cls) -> Self:
        """Read the settings from the environment.

        Raises:
            pydantic.ValidationError: A setting is missing or malformed. The message contains its
                name but not its value.
        """
        names: dict[str, Any] = {
            field: os.environ[_PREFIX + field.upper()]
            for field in cls.model_fields
            if _PREFIX + field.upper() in os.environ
        }
        return cls.model_validate(names)


def interpreter_environment() -> dict[str, str]:
    """The variables that a Python interpreter like this one needs to start. None of them is secret.

    Lambda installs Python outside the usual directories; it needs `LD_LIBRARY_PATH` to find its
    libraries.
    """
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


def credential_files() -> list[str]:
    """Paths of the files with AWS credentials that the environment of this process names, and of
    the data of an embedded stack: next to them is the file that names the stack to the command,
    which sends the API key there.
    """
    names = (
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    )
    local = EmbeddedSettings.find()
    data = [] if local is None else [str(local.embedded_folder)]
    return data + [os.environ[name] for name in names if os.environ.get(name)]


def ecs_agent() -> str | None:
    """URI of the ECS agent for the task of this process; None outside of ECS."""
    return os.environ.get("ECS_AGENT_URI")


def ecs_metadata() -> str | None:
    """URI of the metadata of this process's task; None outside of ECS."""
    return os.environ.get("ECS_CONTAINER_METADATA_URI_V4")


def function_memory() -> int | None:
    """Memory of this Lambda function in MiB; None outside of Lambda."""
    size = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    return int(size) if size.isdecimal() else None


def own_log_level() -> str | None:
    """The configured level of this Lambda function's log lines if Lambda filters its lines, which
    include metrics; None if it does not. Powertools would take the level of Lambda's filter.
    """
    filtered = "AWS_LAMBDA_LOG_LEVEL" in os.environ
    return os.environ.get("POWERTOOLS_LOG_LEVEL") if filtered else None


def region_environment() -> dict[str, str]:
    """The variables that set the region and the endpoint of an AWS SDK, for scripts with a role."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
    return {name: os.environ[name] for name in names if name in os.environ}


def _paths(text: str) -> list[str]:
    paths = text.split(":")
    if not all(path.startswith("/") for path in paths):
        raise ValueError("give absolute paths, separated by colons: /srv/data:/home/me/reports")
    return paths


def _listed(value: object) -> object:
    """Parse a list separated by commas."""
    return (
        [each.strip() for each in value.split(",") if each.strip()]
        if isinstance(value, str)
        else value
    )


class DeployedPool(BaseModel):
    """The settings of a pool that the API and the watcher use."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    queue_url: str
    max_timeout: timedelta
    max_backlog: Annotated[int, Field(ge=1)] = 10_000
    targets: Literal["scripts", "calls"] = "scripts"
    call_networks: tuple[str, ...] = ()
    call_ports: tuple[int, ...] = ()
    call_http: bool = False
    aws_actions: tuple[str, ...] = ("*",)
    has_job_role: bool = False
    signed: bool = False
    """Whether the pool runs signed scripts only."""
    tenants: frozenset[str] | None = None
    """None: all tenants may use the pool."""


class _SchedulingSettings(_Settings):
    """What the API, the watcher and the auditor share: the tables of jobs, the pools, the shards of
    the table of due entries.
    """

    jobs_table: str
    due_table: str
    runs_table: str
    control_table: str
    pools: Json[dict[str, DeployedPool]]
    write_shards: Annotated[int, Field(ge=1, le=999)]
    read_shards: Annotated[int, Field(ge=1, le=999)]


class ApiSettings(_SchedulingSettings):
    scripts_bucket: str
    outputs_bucket: str
    watcher_function: str | None = None
    """None: watchers do not sleep."""
    groups: Annotated[int, Field(ge=1)] = 1
    life: timedelta = timedelta(seconds=125)
    """Of a watcher."""
    keys_table: str
    requests_table: str
    endpoints_table: str
    overview_table: str | None = None
    """None: executions of all jobs are listed job by job."""
    quotas: Json[TenantQuotas] = NO_QUOTAS
    tenant_weights: Json[dict[str, Annotated[int, Field(ge=1)]]] = Field(default_factory=dict)
    auth: Literal["keys", "iam", "jwt"] = "keys"
    tenant_claim: str | None = None
    """With `auth` jwt: the name of the claim that contains the tenant."""
    run_retention: Json[RunRetention] = DEFAULT_RETENTION
    iam_rules: Json[tuple[IamRule, ...]] = ()
    """With `auth` iam: the rules that map a role to a tenant and scopes. If empty, the tenant is
    the AWS account of the caller, with all scopes."""


class EmbeddedSettings(_Settings):
    """Settings that all processes of an embedded stack share, in addition to those of their part.
    There, names of tables, buckets and queues have no meaning.
    """

    embedded_folder: Path
    """Folder of the database, scripts, outputs and secrets."""
    embedded_url: str
    """Base URL of the API, for uploads."""

    @classmethod
    def find(cls) -> Self | None:
        """The settings; None if this process is not part of an embedded stack."""
        return cls.read() if f"{_PREFIX}EMBEDDED_FOLDER" in os.environ else None


class ServerSettings(_Settings):
    """Settings of the supervisor of an embedded stack."""

    server_parent: int
    """The process that started the stack. The stack stops when it is gone."""
    server_port: Annotated[int, Field(ge=1, le=65_535)]
    server_logs: Path
    server_pools: Json[dict[str, dict[str, str]]]
    """Settings of the workers of each pool, as in `ExecutorSettings`."""
    server_workers: Annotated[int, Field(ge=1)] = 1
    """Worker processes of each pool."""


def set_worker_environment(pool: str) -> None:
    """Add the settings of a worker of *pool* to the environment of this process."""
    for name, value in ServerSettings.read().server_pools[pool].items():
        os.environ[_PREFIX + name.upper()] = value


class AuditLogSettings(_Settings):
    jobs_table: str
    runs_table: str
    keys_table: str
    requests_table: str
    audit_bucket: str


class ProjectorSettings(_Settings):
    runs_table: str
    overview_table: str
    run_retention: Json[RunRetention] = DEFAULT_RETENTION


class AuthorizerSettings(_Settings):
    keys_table: str


class WatcherSettings(_SchedulingSettings):
    groups: Annotated[int, Field(ge=1)] = 1
    tenant_weights: Json[dict[str, Annotated[int, Field(ge=1)]]] = Field(default_factory=dict)
    quotas: Json[TenantQuotas] = NO_QUOTAS
    life: timedelta = timedelta(seconds=125)


class AuditorSettings(_SchedulingSettings):
    audit_every: timedelta = timedelta(days=1)
    audit_segments: Annotated[int, Field(ge=1, le=MAX_SEGMENTS)] = 1
    job_retention: timedelta | None = None
    """How long jobs in a final state are kept; None: forever."""


class ExecutorSettings(_Settings):
    """Settings of the executor function and of the worker process."""

    jobs_table: str
    due_table: str
    runs_table: str
    endpoints_table: str | None = None
    """None: calls are made without a circuit breaker."""
    scripts_bucket: str
    outputs_bucket: str
    event_bus: str
    control_table: str | None = None
    """None: watchers do not sleep."""
    groups: Annotated[int, Field(ge=1)] = 1
    pool: str
    queue_url: str
    dlq_url: str
    tenants: Json[frozenset[str]] | None = None
    """The tenants whose runs the pool executes; None: those of all."""
    targets: Literal["scripts", "calls"] = "scripts"
    """What the pool runs: scripts, or HTTP callbacks and AWS calls."""
    call_networks: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Networks that callbacks may reach although they are not public, separated by commas."""
    call_ports: Annotated[tuple[int, ...], BeforeValidator(_listed)] = ()
    """Ports of callbacks in addition to 443; 0: all."""
    call_http: bool = False
    """Whether callbacks may use plain HTTP."""
    aws_actions: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ("*",)
    """The AWS actions that calls may use: `service:Action`, `service:*` or `*`."""
    quotas: Json[TenantQuotas] | None = None
    """Each tenant's maximums; None: unknown, so that runs of children are sent by watchers only."""
    write_shards: Annotated[int, Field(ge=1, le=999)]
    lease: timedelta = timedelta(seconds=60)
    slots: Annotated[int, Field(ge=1, le=64)] = 4
    isolation: Literal["process", "task"] = "process"
    """`task`: the worker process executes one run, then exits."""
    output_cap: Annotated[int, Field(ge=512, le=65_536)] = 2 * 1024
    """Bytes of each output stream up to which all of it is stored in the run record. If a stream
    has more, the log is in the bucket, and the record has the first and the last 256 bytes of each.
    At the upper bound, both streams and a history of 100 attempts stay below the DynamoDB item
    limit of 400 KB."""
    run_retention: Json[RunRetention] = DEFAULT_RETENTION
    log_sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Part of the runs that succeed for which the executor logs a line."""
    log_cap: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    """Maximum size of the log of an attempt, in bytes. Further output is cut, with a notice."""
    interpreter: str | None = None
    """Path of the Python interpreter that runs the scripts; None: the base interpreter of this
    process."""
    script_memory: Annotated[int, Field(ge=32)] = 2048
    """Memory limit of each process of a script, in MiB."""
    script_processes: Annotated[int, Field(ge=1)] = 512
    """Maximum number of concurrent processes and threads of a script."""
    script_file_size: Annotated[int, Field(ge=1)] = 1024
    """Maximum size of a file that a script writes, in MiB."""
    script_start: Literal["fork", "exec"] = "fork"
    """`fork`: scripts of a tenant that start often are forks of an interpreter that has started.
    `exec`: each script starts its own interpreter."""
    packages: Literal["inline", "none"] = "none"
    """`inline`: install the dependencies that a script declares inline (PEP 723)."""
    package_index: Annotated[str, AfterValidator(check_index)] | None = None
    """URL of the package index that replaces the public one; must not contain credentials."""
    package_index_secret: str | None = None
    """ARN of the secret or SSM parameter with the credentials of the package index."""
    package_policy: Json[PackagePolicy] = PackagePolicy.model_construct()
    """The packages that may be installed."""
    trusted_signers: Json[tuple[str, ...]] = ()
    """Public keys of the trusted signers. A script must be signed by one of them; if empty, scripts
    need no signature."""
    job_role_arn: str | None = None
    """ARN of the role that scripts of the pool assume; None: scripts have no AWS credentials."""
    egress: Annotated[Egress, BeforeValidator(Egress.parse)] = OPEN
    """Network access of scripts: `open`, `none`, or a comma-separated list of hosts."""
    visible_folders: Annotated[tuple[Path, ...], BeforeValidator(_paths)] = ()
    """Directories of the worker's host, separated by colons, that scripts can see. Needed for paths
    below a temporary directory or the home of the worker's user, which are otherwise hidden."""
    metadata: Literal["closed", "open"] = "closed"
    """`closed`: scripts cannot reach the instance metadata addresses of the host."""
