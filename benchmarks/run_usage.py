"""What one recurring run uses: units, requests, bytes and CPU, measured on the local stack."""

from __future__ import annotations

import contextlib
import io
from datetime import timedelta

from benchmarks.execute import bare_cpu
from benchmarks.executor_host import WARM_UP, Host
from benchmarks.figures import item_bytes
from benchmarks.meter import Meter, Tally
from benchmarks.report import tell
from benchmarks.simulated import next_hour
from benchmarks.stack import Stack, wait_until
from benchmarks.units import SCRIPT, minutes
from infra.settings import Settings
from nextfire_cli.cost.model import PoolKind
from nextfire_cli.cost.usage import ITEM_OVERHEAD, RunUsage

RUNS = 100
_BARE = 20
_PYTHON = "/usr/bin/python3"
"""Runs the scripts, also alone. Script users can start it."""
_HOUR = timedelta(hours=1)
_WAITED_FOR = ("dynamodb GetItem", "dynamodb UpdateItem", "sqs ChangeMessageVisibility")


def measure_runs(stack: Stack) -> dict[PoolKind, RunUsage]:
    """The usage of a run in a pool on Lambda (`lambda`) and on workers (`fargate`)."""
    stack.push_script("instant", SCRIPT)
    alone = sum(bare_cpu(_PYTHON) for _ in range(_BARE)) / _BARE
    usages: dict[PoolKind, RunUsage] = {}
    for number, host in enumerate(("lambda", "worker")):
        due_at = next_hour() + 4 * number * _HOUR
        stack.become_watcher()
        meter = Meter()
        idle, busy = minutes(stack, meter, due_at, RUNS)
        counted = _count(stack, host)
        stack.become_watcher()
        minutes(stack, Meter(), due_at + 2 * _HOUR, RUNS + WARM_UP)
        cpu, log_bytes = _time(stack, host)
        dispatched = busy - idle
        pool: PoolKind = "lambda" if host == "lambda" else "fargate"
        usages[pool] = RunUsage(
            write_units=(dispatched.write_units + counted.write_units) / RUNS,
            read_units=(dispatched.read_units + counted.read_units) / RUNS,
            sends=dispatched.calls["sqs SendMessageBatch"] / RUNS,
            # Lambda's event source receives and deletes a message for each invocation.
            receives=1 if host == "lambda" else counted.calls["sqs ReceiveMessage"] / RUNS,
            deletes=1 if host == "lambda" else counted.calls["sqs DeleteMessageBatch"] / RUNS,
            visibility=counted.calls["sqs ChangeMessageVisibility"] / RUNS,
            waits=sum(counted.calls[call] for call in _WAITED_FOR) / RUNS,
            log_bytes=round(log_bytes),
            record_bytes=round(_record_bytes(stack)),
            cpu_ms=round(1000 * (cpu - alone), 1),
            start_ms=round(1000 * alone, 1),
            due_writes=dispatched.writes[stack.info.tables["due"]] / RUNS,
        )
        tell(f"{pool}: {usages[pool]}")
    return usages


def _count(stack: Stack, host: str) -> Tally:
    """The calls of `RUNS` executions. Counted with boto3, whose hooks see each call."""
    stack.become_worker()
    meter = Meter()
    executor = Host(host)
    meter.take()
    with contextlib.redirect_stdout(io.StringIO()):  # its metrics
        executor.execute(RUNS)
    return meter.take()


def _time(stack: Stack, host: str) -> tuple[float, float]:
    """CPU seconds and bytes of the log of a run, in a process with the executor's own client."""
    name = f"executor-{host}"
    result = stack.folder / f"{name}.result"
    child = stack.spawn(
        "benchmarks.executor_host",
        host,
        str(RUNS),
        str(result),
        name=name,
        environment={
            **stack.worker_environment(),
            "NEXTFIRE_INTERPRETER": _PYTHON,
            "POWERTOOLS_LOG_LEVEL": "INFO",
            "NEXTFIRE_LOG_SAMPLE": str(Settings().log_sample),
        },
    )
    wait_until(result.exists, most=timedelta(minutes=3), what=f"{RUNS} runs; see {child.log}")
    wait_until(lambda: bool(result.read_text()), most=timedelta(seconds=5), what="the result")
    log = child.log.read_bytes()
    return float(result.read_text()) / RUNS, len(log) / (RUNS + WARM_UP)


def _record_bytes(stack: Stack) -> float:
    """Mean size of a run record as DynamoDB stores it."""
    items = stack.client("dynamodb").scan(TableName=stack.info.tables["runs"])["Items"]
    return sum(map(item_bytes, items)) / len(items) + ITEM_OVERHEAD
