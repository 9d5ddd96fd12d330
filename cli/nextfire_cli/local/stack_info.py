"""Describes a running emulated stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nextfire.client.auth import Auth
from nextfire_cli.local.processes import ProcessRecord
from nextfire_cli.stack_outputs import pascal

WORKER = "worker-"
"""Beginning of the names of workers."""


class _Info(BaseModel):
    model_config = ConfigDict(frozen=True)


class LocalInfo(_Info):
    """What the descriptions of both local stacks have in common."""

    endpoint: str
    """Base URL of the API, to which paths such as `/v1/jobs` are added."""
    account_id: str
    """The tenant of the API key."""
    key_file: Path
    """The API key of the stack; readable by its user only."""
    processes: list[ProcessRecord]
    auth: Auth | None = None
    """How its API knows callers, if not by API keys; without a value for older stacks too."""

    @property
    def alive(self) -> bool:
        """Whether none of `processes` has ended."""
        return all(record.alive for record in self.processes)

    @property
    def api_key(self) -> str:
        """An API key with all permissions of the tenant."""
        return self.key_file.read_text(encoding="ascii").strip()


class PoolInfo(_Info):
    """A pool: its queues and its executor, `lambda` or `worker`."""

    executor: str
    queue_url: str
    dlq_url: str


class Deaths(_Info):
    """How often a process died since the start, and the last cause, as of `cause_of_death`."""

    count: int
    last: str


class StackInfo(LocalInfo):
    """A running local stack: endpoints, parts and credentials."""

    kind: Literal["emulator"] = "emulator"
    aws_endpoint: str
    region: str
    account_id: str
    """The tenant of the API key, and of the AWS keys below."""
    access_key: str
    secret_key: str
    scripts_bucket: str
    outputs_bucket: str
    event_bus: str
    """Name of the event bus."""
    tables: dict[str, str]
    """Physical names by `jobs`, `due`, `runs`, `control`, `keys`, `requests`, `endpoints`."""
    pools: dict[str, PoolInfo]
    functions: dict[str, str]
    """Physical names by `api`, `authorizer`, `watcher`, `auditor`, `executor-<pool>`."""
    roles: dict[str, str]
    """ARNs by `api`, `authorizer`, `watcher`, `auditor`, `executor-<pool>`, `worker-<pool>`."""
    processes: list[ProcessRecord]
    """MiniStack and the workers (`worker-<pool>-<number>`)."""
    up: ProcessRecord | None = None
    """The command that starts dead workers again."""
    deaths: dict[str, Deaths] = {}
    """By the name of the process."""

    def lost(self) -> list[str]:
        """The processes without which the API does not answer, and that have ended."""
        needed = (each for each in self.processes if not each.name.startswith(WORKER))
        return [each.name for each in needed if not each.alive]

    def parts(self) -> dict[str, dict[str, Any]]:
        """Its processes as `EmbeddedInfo.parts` shows them. A death is counted when the process is
        started again; until then, and if `up` itself is dead, `pid` is None.
        """
        found: dict[str, dict[str, Any]] = {}
        for record in [*([self.up] if self.up else []), *self.processes]:
            died = self.deaths.get(record.name)
            found[record.name] = {
                "pid": record.pid if record.alive else None,
                "deaths": died.count if died else 0,
                "lastDeath": died.last if died else None,
            }
        return found


def parts(outputs: Mapping[str, str]) -> dict[str, object]:
    """The fields of `StackInfo` that follow from the *outputs* of the deployed stack."""
    pools = {
        name: PoolInfo(
            executor=executor,
            queue_url=outputs[f"QueueUrl{pascal(name)}"],
            dlq_url=outputs[f"DlqUrl{pascal(name)}"],
        )
        for name, executor in json.loads(outputs["Pools"]).items()
    }
    names = ["api", "watcher", "auditor"]
    if "AuthorizerFunction" in outputs:  # with `auth` keys only
        names.append("authorizer")
    functions = {name: outputs[f"{pascal(name)}Function"] for name in names}
    roles = {name: outputs[f"{pascal(name)}RoleArn"] for name in names}
    for name, pool in pools.items():
        if pool.executor == "lambda":
            functions[f"executor-{name}"] = outputs[f"ExecutorFunction{pascal(name)}"]
            roles[f"executor-{name}"] = outputs[f"ExecutorRoleArn{pascal(name)}"]
        else:
            roles[f"worker-{name}"] = outputs[f"WorkerRoleArn{pascal(name)}"]
    tables = {
        key.removesuffix("Table").lower(): name
        for key, name in outputs.items()
        if key.endswith("Table")
    }
    auth = Auth(outputs.get("Auth", Auth.KEYS))
    return {
        "auth": None if auth is Auth.KEYS else auth,
        "scripts_bucket": outputs["ScriptsBucket"],
        "outputs_bucket": outputs["OutputsBucket"],
        "event_bus": outputs["EventBus"],
        "tables": tables,
        "pools": pools,
        "functions": functions,
        "roles": roles,
    }
