"""The watcher: invoked every minute per group, lives for two minutes, dispatches due entries."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws.clients import SystemClock, dynamodb, sqs
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.settings import WatcherSettings, function_memory
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.tick import BUDGET
from nextfire.usecases.watcher_life import WatcherLife
from nextfire.wiring.telemetry import Telemetry
from nextfire.wiring.watcher import WatcherConfig, WatcherPorts, build_watcher

_THREADS = 16
_BATCHES = 16
"""Batches in flight. One takes a quarter of a second on AWS, and 20 ms of CPU time."""
_REQUESTS = 32
_CODE_MIB = 100
_BUDGET_AT_LEAST = 5_000

telemetry = Telemetry("watcher")


@cache
def _watcher_of(group: int) -> WatcherLife:
    """The watcher of *group* in this process. Invocations in one process are sequential."""
    settings = WatcherSettings.read()
    return build_watcher(watcher_ports(settings), config_of(settings, group), telemetry)


def watcher_ports(settings: WatcherSettings) -> WatcherPorts:
    """The adapters of a watcher."""
    database, shards = dynamodb(), settings.write_shards
    # Three thread pools, so that no task waits for a task of the same pool (deadlock): batches in
    # flight submit single calls, and both submit concurrent requests.
    batches = ThreadPoolExecutor(_REQUESTS)
    queues = {name: pool.queue_url for name, pool in settings.pools.items()}
    return WatcherPorts(
        jobs=DynamoDbJobStore(
            database, table=settings.jobs_table, due_table=settings.due_table, shards=shards
        ),
        due=DynamoDbDueStore(database, table=settings.due_table, shards=shards, executor=batches),
        runs=DynamoDbRunStore(
            database, table=settings.runs_table, due_table=settings.due_table, shards=shards
        ),
        queue=SqsRunQueue(sqs(), queues=queues, executor=batches),
        control=DynamoDbControlStore(database, table=settings.control_table),
        clock=SystemClock(),
        executor=ThreadPoolExecutor(_THREADS),
        lanes=ThreadPoolExecutor(_BATCHES),
        at_once=_BATCHES,
    )


def config_of(settings: WatcherSettings, group: int) -> WatcherConfig:
    """The configuration of a watcher of *group*, with a new holder name."""
    return WatcherConfig(
        group=group,
        holder=f"{group}-{uuid.uuid4().hex[:12]}",
        shards=range(group, settings.read_shards, settings.groups),
        shares=Shares(
            backlogs={name: pool.max_backlog for name, pool in settings.pools.items()},
            weights=settings.tenant_weights,
            quotas=settings.quotas,
        ),
        budget=budget_of(function_memory()),
    )


def budget_of(memory: int | None) -> int:
    """Number of due entries that a function of *memory* MiB may hold, at 1 KB per entry.

    Half of the memory that the code leaves; the other half is for entries that are being read.
    *memory* is None outside Lambda.
    """
    if memory is None:
        return BUDGET
    return max((memory - _CODE_MIB) * 1024 // 2, _BUDGET_AT_LEAST)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001
    """Watch until the end of this invocation's life. The next one starts a minute before that.

    Args:
        event: ``{"group": n}``, the constant input of the group's EventBridge rule.
        context: The Lambda context; unused.
    """
    watcher = _watcher_of(int(event.get("group", 0)))
    return {"dispatched": watcher.live(WatcherSettings.read().life)}
