"""What benchmarks do with a stack, on moto and in the process of the test."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from botocore import xform_name
from botocore.config import Config

from benchmarks import executor_host, fill
from benchmarks.__main__ import main
from benchmarks.simulated import next_hour
from benchmarks.stack import POOL, Child, Stack
from nextfire.adapters.aws.lean.json_client import JsonClient
from nextfire.usecases.dispatch import parked, reader
from nextfire.wiring import watcher_ports
from nextfire_cli.local.processes import ProcessRecord
from nextfire_cli.local.stack_info import PoolInfo, StackInfo
from tests.fakes import InlineExecutor
from tests.integration import shared_clients
from tests.integration.deployment import Deployment
from tests.integration.stack_resources import TENANT

_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": shared_clients.REGION,
    "AWS_REGION": shared_clients.REGION,
}


_LEVEL = "POWERTOOLS_LOG_LEVEL"
"""Not set here: loggers stay, with their level, for the tests that follow in this process."""


class StackOnMoto(Stack):
    """`Stack` with the resources of *system*. It starts no process."""

    def __init__(self, system: Deployment, folder: Path) -> None:
        self.folder = folder
        self._settings = {f"NEXTFIRE_{k.upper()}": v for k, v in system.names().items()}
        pool = {"queueUrl": system.queue_url, "maxTimeout": "PT1H"}
        self._settings |= {"NEXTFIRE_POOLS": json.dumps({POOL: pool})}
        self._settings |= {"NEXTFIRE_WRITE_SHARDS": "1", "NEXTFIRE_READ_SHARDS": "1"}
        key_file = folder / "key"
        key_file.write_text("key")
        self.info = StackInfo(
            endpoint="http://127.0.0.1",
            account_id=TENANT,
            key_file=key_file,
            processes=[],
            aws_endpoint="http://127.0.0.1",
            region=shared_clients.REGION,
            access_key="testing",
            secret_key="testing",
            scripts_bucket=system.bucket,
            outputs_bucket=system.outputs_bucket,
            event_bus=system.event_bus,
            tables={name: name for name in ("jobs", "due", "runs", "control")},
            pools={
                POOL: PoolInfo(
                    executor="worker", queue_url=system.queue_url, dlq_url=system.dlq_url
                )
            },
            functions={},
            roles={},
        )

    def running(self, **_: object) -> AbstractContextManager[Stack]:
        """As `benchmarks.stack.stack`."""
        return nullcontext(self)

    def client(self, service: str) -> Any:
        client = _shared(service)
        client.purge_queue = lambda **_: None  # moto allows one a minute
        return client

    def watcher_environment(self) -> dict[str, str]:
        return self._settings | _CREDENTIALS

    def worker_environment(self, pool: str = POOL) -> dict[str, str]:
        more = {"NEXTFIRE_POOL": pool, "NEXTFIRE_LEASE": "PT30S", "NEXTFIRE_QUOTAS": "{}"}
        return self._settings | _CREDENTIALS | more

    def _become(self, environment: Mapping[str, str]) -> None:
        super()._become(environment)
        del os.environ[_LEVEL]

    def emulator_cpu(self) -> float:
        return time.process_time()

    def spawn(
        self, module: str, *arguments: str, name: str, environment: Mapping[str, str]
    ) -> Child:
        """Do in this process what the module does."""
        log = self.folder / f"{name}.log"
        said = io.StringIO()
        usual = {name: value for name, value in environment.items() if name != _LEVEL}
        with patch.dict(os.environ, usual), redirect_stdout(said):
            _MAINS[module](self, *arguments)
        log.write_text(said.getvalue())
        return Child(ProcessRecord(name=name, pid=2**30, started="long ago"), log)

    def end(self, *children: Child) -> None:
        """They have ended."""


def _fill(stack: Stack, instructions: str) -> None:
    filling = fill.Filling.model_validate_json(instructions)
    for items in fill.items(filling):
        for table, item in zip((filling.jobs_table, filling.due_table), items, strict=True):
            stack.client("dynamodb").put_item(TableName=table, Item=item)


def _execute(_: Stack, kind: str, runs: str, result: str) -> None:
    executor_host.main(kind, int(runs), Path(result))


_MAINS: Mapping[str, Callable[..., None]] = {
    "benchmarks.fill": _fill,
    "benchmarks.executor_host": _execute,
}


@pytest.fixture
def stack(
    system: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StackOnMoto]:
    """A stack on moto. Benchmarks may change the environment of the process."""
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setattr("boto3.client", shared_clients.new_client)  # `Meter` counts their calls
    monkeypatch.setattr(JsonClient, "call", _call_of_moto)
    # Inline: simulated time does not wait for threads.
    monkeypatch.setattr(watcher_ports, "ThreadPoolExecutor", lambda _: InlineExecutor())
    boto3.setup_default_session()
    # Each bucket that a new watcher reads costs a call.
    system.forget_due(next_hour() - timedelta(minutes=2))
    monkeypatch.setattr(reader, "STRAGGLER_BUCKETS", 1)
    monkeypatch.setattr(parked, "PARKED_AT_MOST", timedelta())
    monkeypatch.setattr("atexit.register", lambda _: None)  # the metrics of an executor
    with patch.dict(os.environ):
        yield StackOnMoto(system, tmp_path)


Start = Callable[[str], dict[str, Any]]


@pytest.fixture
def start(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Start:
    """Start a benchmark with the test's stack, as the command does. Returns its figures."""

    def start(name: str) -> dict[str, Any]:
        benchmark = import_module(f"benchmarks.{name}")
        if "running_stack" in vars(benchmark):
            stack = request.getfixturevalue("stack")
            monkeypatch.setattr(benchmark, "running_stack", stack.running)
        assert main([name]) == 0
        figures: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return figures

    return start


def shrink(monkeypatch: pytest.MonkeyPatch, benchmark: ModuleType, **sizes: object) -> None:
    """Set constants of *benchmark*."""
    for name, size in sizes.items():
        monkeypatch.setattr(benchmark, name, size)


def _call_of_moto(self: JsonClient, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """As the lean client, which moto does not see."""
    call = getattr(_shared(self.service), xform_name(operation))
    answer: dict[str, Any] = call(**request)
    return answer


def _shared(service: str) -> Any:
    """A client that only benchmarks use: they change it."""
    return shared_clients.of_moto(service, config=Config(user_agent_extra="benchmarks"))
