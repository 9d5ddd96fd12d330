"""The AWS app in the emulator, whose version is changed while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.dynamodb.due_items import QUARANTINE_BUCKET, decode_entry
from nextfire.adapters.dynamodb.job_items import decode_job
from nextfire.adapters.dynamodb.run_items import decode_run
from nextfire.domain.due import StoredEntry
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.deployment import Deployment, cdk_options
from nextfire_cli.local.emulated_workers import EmulatedWorkers
from nextfire_cli.local.emulator import NAME, ROOT_KEY, Emulator
from nextfire_cli.local.processes import Processes
from nextfire_cli.local.stack import LocalStack
from nextfire_cli.local.stack_info import StackInfo
from tests.e2e.conftest import ROOT, Stack
from tests.process_tree import function_processes, tree_of
from tests.snapshot import Records, Snapshot

LEASE = timedelta(seconds=6)
HELD = "held"
"""A pool whose workers tests start when its queue has messages."""
_POOLS = {
    "default": {"executor": "worker"},
    HELD: {"executor": "worker"},
    # An executor may be killed when it has just received a message, which is hidden for `timeout`.
    "lambda": {
        "executor": "lambda",
        "memory": 512,
        "batchSize": 1,
        "lease": "PT5S",
        "timeout": "PT75S",
    },
    "calls": {
        "executor": "worker",
        "targets": "calls",
        "callNetworks": ["127.0.0.0/8"],
        "callPorts": [0],
        "callHttp": True,
    },
}
SETTINGS = {"local": json.dumps({"pools": _POOLS})}
_GRACE = timedelta(seconds=30)
"""An idle worker ends when its long poll has ended."""
_WATCH = """
from functions.watcher.handler import handler
while True:
    handler({"group": 0}, None)
"""


class ChangingStack(Stack):
    """The stack, which *local* deployed without workers."""

    def __init__(self, local: LocalStack, info: StackInfo, state: Path) -> None:
        super().__init__(local, info, state)
        self._emulator = Emulator(state)
        self._processes = Processes(state / "processes.json", folder=state / "tmp")

    def close(self) -> None:
        """End the workers, and close clients."""
        self.end_processes_of(self.running_workers())
        self._emulator.close()

    def deploy(self, root: Path) -> None:
        """Deploy the version at *root* while everything runs, and wake its watcher: the emulator
        kills functions whose code changes, and a rule's next minute may be far.
        """
        Deployment(root, self._emulator, state=self.state, cache=ROOT / ".nextfire").update(
            self._processes,
            cdk_options(LEASE, SETTINGS),
            lambda _line: None,
            tmp=self.state / "tmp",
            log=self.state / "logs" / "cdk.log",
        )
        self.client("lambda").invoke(
            FunctionName=self.info.functions["watcher"],
            InvocationType="Event",
            Payload=json.dumps({"group": 0}),
        )

    def status(self) -> tuple[str, str]:
        """The id and the status of the CloudFormation stack."""
        [found] = self.client("cloudformation").describe_stacks(StackName="Nextfire")["Stacks"]
        return found["StackId"], found["StackStatus"]

    def start_workers(self, root: Path, *pools: str) -> dict[str, int]:
        """Start a worker of the version at *root* for each of *pools*. Returns the process ids of
        their supervisors, by pool.
        """
        workers, outputs = EmulatedWorkers(root, self.state), self.outputs()
        for pool in pools:
            name = f"worker-{pool}-{os.urandom(2).hex()}"
            workers.start(
                self._processes,
                name,
                pool,
                outputs,
                endpoint=self.info.aws_endpoint,
                tmp=self.state / "tmp",
                log=self.state / "logs" / f"{name}.log",
            )
        started = self._processes.recorded()[-len(pools) :]
        return dict(zip(pools, (each.pid for each in started), strict=True))

    def running_workers(self) -> dict[str, int]:
        """The process ids of all supervisors of workers, by name."""
        records = self._processes.recorded()
        return {each.name: each.pid for each in records if each.name.startswith("worker-")}

    def end_processes_of(self, workers: Mapping[str, int]) -> None:
        """End *workers*, which hand back what they have."""
        pids = {*workers.values()}
        ending = [each for each in self._processes.recorded() if each.pid in pids]
        late = self._processes.end(ending, grace=_GRACE)
        assert not late, f"{late} did not end"

    def runs_code_of(self, root: Path, function: str) -> bool:
        """Whether the processes of *function* (a key of `info.functions`) have the core of the
        version at *root*. False if it has none.
        """
        wanted = _sources(root / "layers")
        layers = [
            [Path(each, "python") for each in _variables(pid)["_LAMBDA_LAYERS_DIRS"].split(":")]
            for pid in self._processes_of(function)
        ]
        found = [_sources(each) for each_process in layers for each in each_process]
        return [each for each in found if each] == [wanted] * len(layers) != []

    def kill(self, function: str) -> None:
        """Kill the processes of *function* (a key of `info.functions`)."""
        for pid in self._processes_of(function):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _processes_of(self, function: str) -> list[int]:
        [emulator] = [each.pid for each in self.info.processes if each.name == NAME]
        return function_processes(emulator, self.info.functions[function])

    @contextmanager
    def watcher(self, root: Path) -> Iterator[Path]:
        """Another watcher next to the deployed one, of the version at *root*, which is killed in
        the end. Yields its log.
        """
        deployed = self.client("lambda").get_function_configuration(
            FunctionName=self.info.functions["watcher"]
        )
        log = self.state / "logs" / f"watcher-{os.urandom(2).hex()}.log"
        with log.open("wb") as output, subprocess.Popen(
            [sys.executable, "-P", "-c", _WATCH],
            env={
                **inherited_environment(),
                **deployed["Environment"]["Variables"],
                "AWS_ACCESS_KEY_ID": ROOT_KEY,
                "AWS_SECRET_ACCESS_KEY": ROOT_KEY,
                "AWS_REGION": self.info.region,
                "AWS_DEFAULT_REGION": self.info.region,
                "AWS_ENDPOINT_URL": self.info.aws_endpoint,
                "PYTHONPATH": str(root),
            },
            cwd=self.state / "tmp",
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                yield log
            finally:
                process.kill()

    def tables(self) -> Snapshot:
        """What the tables contain, read by this version. Everything must decode."""
        now = SystemClock().now()
        due = self._scan("due")
        assert not [each for each in due if each["bucket"]["S"] == QUARANTINE_BUCKET]
        entries = [decode_entry(each) for each in due]
        stored = [each.entry for each in entries if isinstance(each, StoredEntry)]
        assert len(stored) == len(entries), entries
        runs = [decode_run(each) for each in self._scan("runs") if "state" in each]
        jobs = [decode_job(each) for each in self._scan("jobs")]
        return Snapshot(
            now,
            {job.key: job for job in jobs},
            Records({run.key: run for run in runs}),
            stored,
        )

    def _scan(self, table: str) -> list[dict[str, Any]]:
        pages = self.client("dynamodb").get_paginator("scan")
        found = pages.paginate(TableName=self.info.tables[table], ConsistentRead=True)
        return [item for page in found for item in page["Items"]]


def processes_under(supervisors: Mapping[str, int]) -> set[str]:
    """The ids of the processes of workers, as names of workers end with them."""
    return {str(pid) for each in supervisors.values() for pid in tree_of(each)}


def _sources(folder: Path) -> dict[str, bytes]:
    core = folder / "nextfire" / "usecases"
    return {str(each.relative_to(core)): each.read_bytes() for each in core.rglob("*.py")}


def _variables(pid: int) -> dict[str, str]:
    texts = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(each.split("=", 1) for each in texts if "=" in each)
