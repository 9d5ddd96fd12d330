"""What the environment says, read once by each function. The only home of `os.environ`."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Json
from pydantic.alias_generators import to_camel

from nextfire.domain.egress import OPEN, Egress
from nextfire.domain.iam_rules import IamRule
from nextfire.domain.packages import PackagePolicy, check_index
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas

_PREFIX = "NEXTFIRE_"


class _Settings(BaseModel):
    """Field ``jobs_table`` is read from ``NEXTFIRE_JOBS_TABLE``. Durations are ISO 8601."""

    # Each function reads its own alone: no other's validator is built.
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)

    @classmethod
    def read(cls) -> Self:
        """The settings in the environment.

        Raises:
            pydantic.ValidationError: One is missing or malformed; it is named, its value is not.
        """
        names: dict[str, Any] = {
            field: os.environ[_PREFIX + field.upper()]
            for field in cls.model_fields
            if _PREFIX + field.upper() in os.environ
        }
        return cls.model_validate(names)


def interpreter_environment() -> dict[str, str]:
    """What an interpreter like ours needs to be found and to start; nothing secret is in it.

    Lambda's Python lies outside the usual folders and finds its libraries by `LD_LIBRARY_PATH`.
    """
    return {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}


def credential_files() -> list[str]:
    """The files that hold this process's AWS credentials, as far as its environment names them."""
    names = (
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    )
    return [os.environ[name] for name in names if os.environ.get(name)]


def ecs_agent() -> str | None:
    """Where ECS's agent listens to the task that this process is of; None outside of ECS."""
    return os.environ.get("ECS_AGENT_URI")


def function_memory() -> int | None:
    """MiB that Lambda gives this process; None outside of Lambda."""
    size = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    return int(size) if size.isdecimal() else None


def region_environment() -> dict[str, str]:
    """What tells an AWS SDK its region, for scripts that act in a role."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
    return {name: os.environ[name] for name in names if name in os.environ}


def _paths(text: str) -> list[str]:
    paths = text.split(":")
    if not all(path.startswith("/") for path in paths):
        raise ValueError("give absolute paths, separated by colons: /srv/data:/home/me/reports")
    return paths


class PoolSettings(BaseModel):
    """A pool as the API and the watcher know it."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    queue_url: str
    max_timeout: timedelta
    max_backlog: Annotated[int, Field(ge=1)] = 10_000


class ApiSettings(_Settings):
    jobs_table: str
    due_table: str
    runs_table: str
    control_table: str
    scripts_bucket: str
    outputs_bucket: str
    pools: Json[dict[str, PoolSettings]]
    write_shards: Annotated[int, Field(ge=1, le=999)]
    read_shards: Annotated[int, Field(ge=1, le=999)]
    keys_table: str
    requests_table: str
    quotas: Json[TenantQuotas] = NO_QUOTAS
    tenant_weights: Json[dict[str, Annotated[int, Field(ge=1)]]] = Field(default_factory=dict)
    auth: Literal["keys", "iam", "jwt"] = "keys"
    tenant_claim: str | None = None
    """The claim that holds the tenant, with `auth` jwt."""
    iam_rules: Json[tuple[IamRule, ...]] = ()
    """Which tenant and scopes roles have, with `auth` iam; empty: their account, and all scopes."""


class AuditLogSettings(_Settings):
    jobs_table: str
    runs_table: str
    keys_table: str
    requests_table: str
    audit_bucket: str


class AuthorizerSettings(_Settings):
    keys_table: str


class WatcherSettings(_Settings):
    jobs_table: str
    due_table: str
    runs_table: str
    control_table: str
    pools: Json[dict[str, PoolSettings]]
    write_shards: Annotated[int, Field(ge=1, le=999)]
    read_shards: Annotated[int, Field(ge=1, le=999)]
    groups: Annotated[int, Field(ge=1)] = 1
    tenant_weights: Json[dict[str, Annotated[int, Field(ge=1)]]] = Field(default_factory=dict)
    quotas: Json[TenantQuotas] = NO_QUOTAS
    life: timedelta = timedelta(seconds=125)


class AuditorSettings(_Settings):
    jobs_table: str
    due_table: str
    runs_table: str
    control_table: str
    pools: Json[dict[str, PoolSettings]]
    write_shards: Annotated[int, Field(ge=1, le=999)]
    read_shards: Annotated[int, Field(ge=1, le=999)]
    audit_every: timedelta = timedelta(days=1)


class ExecutorSettings(_Settings):
    """Of the executor function and of the worker process."""

    jobs_table: str
    due_table: str
    runs_table: str
    scripts_bucket: str
    outputs_bucket: str
    event_bus: str
    pool: str
    queue_url: str
    dlq_url: str
    write_shards: Annotated[int, Field(ge=1, le=999)]
    lease: timedelta = timedelta(seconds=60)
    slots: Annotated[int, Field(ge=1, le=64)] = 4
    isolation: Literal["process", "task"] = "process"
    """`task`: the worker process carries out one run, then ends."""
    output_cap: Annotated[int, Field(ge=256, le=65_536)] = 16 * 1024
    """Bytes of each stream that are kept on the record: at most so many that both, with the history
    of a hundred attempts, stay below the 400 KB of an item in DynamoDB."""
    log_cap: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024
    """Bytes of an attempt's log; what is printed beyond is cut, with a notice."""
    interpreter: str | None = None
    """The Python that runs the scripts; None: the one that this process's was made from."""
    script_memory: Annotated[int, Field(ge=32)] = 2048
    """MiB that each process of a script may allocate."""
    script_processes: Annotated[int, Field(ge=1)] = 512
    """Processes and threads that a script may have at a time."""
    script_file_size: Annotated[int, Field(ge=1)] = 1024
    """MiB that a file which a script writes may have."""
    packages: Literal["inline", "none"] = "none"
    """Whether packages that a script names inline (PEP 723) are installed for it."""
    package_index: Annotated[str, AfterValidator(check_index)] | None = None
    """Where they come from, instead of the public index; without credentials."""
    package_index_secret: str | None = None
    """ARN of the secret or the parameter that holds the credentials of the index."""
    package_policy: Json[PackagePolicy] = PackagePolicy.model_construct()
    """Which of them are installed."""
    trusted_signers: Json[tuple[str, ...]] = ()
    """Public keys whose signature a script must have; none: scripts need no signature."""
    job_role_arn: str | None = None
    """The role that the pool's scripts act in; None: they have no credentials."""
    egress: Annotated[Egress, BeforeValidator(Egress.parse)] = OPEN
    """What scripts may reach on the network: `open`, `none`, or hosts separated by commas."""
    visible_folders: Annotated[tuple[Path, ...], BeforeValidator(_paths)] = ()
    """Folders of the worker's host, separated by colons, that scripts see although they are in a
    temporary folder or in the home of the worker's user."""
    metadata: Literal["closed", "open"] = "closed"
    """Whether the metadata addresses of the machine are closed to scripts."""
