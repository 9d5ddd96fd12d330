"""The stack that benchmarks run on, and the processes that they start."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3

from benchmarks.report import tell
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.domain.definition import JobDefinition
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.places import tenant_place
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.processes import Processes, ProcessRecord, interrupts_raised
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_info import StackInfo

ROOT = Path(__file__).resolve().parents[1]
POOL = "default"
STRICT = "NEXTFIRE_BENCHMARK_STRICT"
"""Set by `--strict`: the stack runs behind the stand-in that enforces AWS's limits."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class _QuietStack(LocalStack):
    """A local stack that does not invoke its deployed watcher: benchmarks start their own."""

    def _wake_watcher(self, outputs: dict[str, str]) -> None:
        pass


class _PromptStack(_QuietStack):
    """The same on an emulator whose long polls end at once; see `benchmarks.prompt_emulator`."""

    def __init__(self, root: Path, *, state: Path, strict: Sequence[str] | None = None) -> None:
        super().__init__(root, state=state, strict=strict)
        self._emulator.program = [str(ROOT / "benchmarks" / "prompt_emulator.py")]


class Stack:
    """The deployed app, and the processes that a benchmark starts."""

    def __init__(self, local: LocalStack, info: StackInfo, folder: Path) -> None:
        self.local = local
        self.info = info
        self.folder = folder
        self._processes = Processes(folder / "benchmark.json", folder=folder / "benchmark")
        (folder / "benchmark").mkdir()
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        self._outputs: dict[str, str] = {
            output["OutputKey"]: output["OutputValue"]
            for stack in stacks
            for output in stack.get("Outputs", [])
        }

    def client(self, service: str) -> Any:  # noqa: ANN401 — clients are typed by literal names only
        """A client as the account's root user."""
        return self.local.client(service)

    @property
    def emulator(self) -> str:
        """The address of the emulator, also if a stand-in is in front of it."""
        return str(self.client("dynamodb").meta.endpoint_url)

    @property
    def tenant(self) -> str:
        return self.info.account_id

    @cached_property
    def shards(self) -> int:
        return int(self.watcher_environment()["NEXTFIRE_WRITE_SHARDS"])

    def watcher_environment(self) -> dict[str, str]:
        """The environment of the deployed watcher, with the credentials of its role."""
        function = self.client("lambda").get_function_configuration(
            FunctionName=self.info.functions["watcher"]
        )
        return {**function["Environment"]["Variables"], **self._credentials("watcher")}

    def worker_environment(self, pool: str = POOL) -> dict[str, str]:
        """The environment of a worker of *pool*, with the credentials of its role."""
        environment: dict[str, str] = json.loads(
            self._outputs[f"WorkerEnvironment{pool.capitalize()}"]
        )
        return {
            **environment,
            **self._credentials(f"worker-{pool}"),
            "POWERTOOLS_SERVICE_NAME": "worker",
            "POWERTOOLS_METRICS_NAMESPACE": "nextfire",
        }

    def _credentials(self, role: str) -> dict[str, str]:
        answer = self.client("sts").assume_role(
            RoleArn=self.info.roles[role], RoleSessionName="benchmark", DurationSeconds=3600
        )
        return {
            "AWS_ACCESS_KEY_ID": answer["Credentials"]["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": answer["Credentials"]["SecretAccessKey"],
            "AWS_SESSION_TOKEN": answer["Credentials"]["SessionToken"],
            "AWS_REGION": self.info.region,
            "AWS_DEFAULT_REGION": self.info.region,
            "AWS_ENDPOINT_URL": self.info.aws_endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(self.folder / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "none"),
        }

    def become_watcher(self) -> None:
        """Give this process the deployed watcher's environment."""
        self._become(self.watcher_environment())

    def become_worker(self, pool: str = POOL) -> None:
        """Give this process the environment of a worker of *pool*."""
        self._become(self.worker_environment(pool))

    def _become(self, environment: Mapping[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith(("AWS_", "NEXTFIRE_"))]:
            del os.environ[name]
        os.environ.update(environment)
        os.environ["POWERTOOLS_LOG_LEVEL"] = "CRITICAL"  # stdout is for the result
        os.environ["NEXTFIRE_AWS_CLIENT"] = "boto3"  # whose hooks count the calls
        boto3.setup_default_session()

    def spawn(
        self, module: str, *arguments: str, name: str, environment: Mapping[str, str]
    ) -> Child:
        """Run a module in a separate process that ends with the stack."""
        log = self.folder / "logs" / f"{name}.log"
        path = os.pathsep.join(str(ROOT / part) for part in ("layers", "cli", ""))
        process = self._processes.spawn(
            name,
            [sys.executable, "-m", module, *arguments],
            environment={
                **inherited_environment(),
                **environment,
                "PYTHONPATH": path,
                "TMPDIR": str(self.folder / "benchmark"),
            },
            cwd=self.folder / "benchmark",
            log=log,
        )
        record = next(r for r in self._processes.recorded() if r.pid == process.pid)
        return Child(record, log)

    def end(self, *children: Child) -> None:
        """Send SIGTERM, then after a few seconds SIGKILL."""
        self._processes.end([child.record for child in children], grace=timedelta(seconds=5))

    def end_all(self) -> None:
        self._processes.end(self._processes.recorded(), grace=timedelta(seconds=5))

    def emulator_cpu(self) -> float:
        """CPU seconds of the MiniStack process itself, without its Lambda functions."""
        [pid] = [record.pid for record in self.info.processes if record.name == "ministack"]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def due_store(self) -> DynamoDbDueStore:
        """The due entries, accessed as the root user."""
        return DynamoDbDueStore(
            self.client("dynamodb"),
            table=self.info.tables["due"],
            shards=self.shards,
            executor=ThreadPoolExecutor(4),
        )

    def run_store(self) -> DynamoDbRunStore:
        """The run records, accessed as the root user."""
        return DynamoDbRunStore(self.client("dynamodb"), table=self.info.tables["runs"])

    def push_script(self, handler: str, source: bytes) -> None:
        """Upload a script that jobs of `POOL` may name."""
        key = f"{tenant_place(POOL, self.tenant)}{handler}.py"
        self.client("s3").put_object(Bucket=self.info.scripts_bucket, Key=key, Body=source)

    def registrar(self, tenant: str | None = None) -> Registrar:
        """Registers jobs of *tenant*, by default the stack's tenant, as the API does but without
        HTTP.
        """
        tables = self.info.tables
        store = DynamoDbJobStore(
            self.client("dynamodb"),
            table=tables["jobs"],
            due_table=tables["due"],
            shards=self.shards,
        )
        pools = dict.fromkeys(self.info.pools, timedelta(hours=1))
        limits = Limits(pools=pools, scripts_bucket=self.info.scripts_bucket)
        control = DynamoDbControlStore(self.client("dynamodb"), table=tables["control"])
        unsent = FindUnsent(self.due_store(), control, read_shards=self.shards)
        return Registrar(ManageJobs(store, limits, unsent), tenant or self.tenant)


@dataclass(frozen=True, slots=True)
class Child:
    """A process of a benchmark."""

    record: ProcessRecord
    log: Path

    def peak_memory(self) -> float:
        """Peak resident memory in MiB."""
        lines = Path(f"/proc/{self.record.pid}/status").read_text().splitlines()
        [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        return int(peak) / 1024


class Registrar:
    """Registers jobs of one tenant."""

    def __init__(self, manage_jobs: ManageJobs, tenant: str) -> None:
        self._manage_jobs = manage_jobs
        self._tenant = tenant

    def register(self, job_id: str, document: Mapping[str, object], now: datetime) -> Job:
        """Store the job and its first due entry. *document* is the API's; the target is added."""
        definition = JobDefinition.model_validate(
            {"target": {"pool": POOL, "handler": "instant"}, **document}
        )
        key = JobKey(self._tenant, job_id)
        return self._manage_jobs.register(key, definition, uid=uuid.uuid4().hex[:12], now=now)


@contextmanager
def stack(*, watcher: bool, prompt: bool = False) -> Generator[Stack]:
    """A fresh local stack without workers, in a temporary folder. Always removed at the end.

    Args:
        watcher: Whether the deployed watcher runs.
        prompt: Without a watcher: whether the emulator's long polls end as soon as SQS's.
    """
    folder = Path(tempfile.mkdtemp(prefix="nextfire-benchmark-"))
    kind = LocalStack if watcher else _PromptStack if prompt else _QuietStack
    local = kind(ROOT, state=folder, strict=() if os.environ.get(STRICT) else None)
    with interrupts_raised():
        try:
            with local.running(tell, workers=0) as info:
                it = Stack(local, info, folder)
                if not watcher:
                    events = it.client("events")
                    for rule in events.list_rules()["Rules"]:
                        events.disable_rule(Name=rule["Name"])
                try:
                    yield it
                finally:
                    tell("stopping the stack")
                    it.end_all()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def wait_until(
    condition: Callable[[], bool], *, most: timedelta, what: str, pause: float = 0.1
) -> None:
    """Poll *condition*, every *pause* seconds.

    Raises:
        TimeoutError: The condition did not become true within *most*.
    """
    deadline = time.monotonic() + most.total_seconds()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {most} waiting for {what}")
        time.sleep(pause)
