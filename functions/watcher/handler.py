"""The watcher: invoked each minute for its group, lives two, dispatches what is due."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from nextfire.adapters.aws import SystemClock, dynamodb, sqs
from nextfire.adapters.control_store import DynamoDbControlStore
from nextfire.adapters.due_store import DynamoDbDueStore
from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.run_queue import SqsRunQueue
from nextfire.adapters.run_store import DynamoDbRunStore
from nextfire.settings import WatcherSettings, function_memory
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.tick import BUDGET
from nextfire.usecases.watcher_life import WatcherLife
from nextfire.wiring.telemetry import Telemetry
from nextfire.wiring.watcher import WatcherConfig, WatcherPorts, build_watcher

_THREADS = 16
_BATCHES = 16
"""In flight. One takes a quarter of a second on AWS, and 20 ms of a core."""
_REQUESTS = 32
_CODE_MIB = 100
_BUDGET_AT_LEAST = 5_000

telemetry = Telemetry("watcher")


@cache
def _watcher_of(group: int) -> WatcherLife:
    """The watcher of *group* in this process; invocations of one process follow each other."""
    settings = WatcherSettings.read()
    return build_watcher(watcher_ports(settings), config_of(settings, group), telemetry)


def watcher_ports(settings: WatcherSettings) -> WatcherPorts:
    """The adapters of a watcher."""
    database, shards = dynamodb(), settings.write_shards
    # Three pools, so that nothing waits in a thread for what waits for that thread: a batch in
    # flight makes single calls, and both have requests go side by side.
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
    """The part of a watcher of *group*, under a new holder name."""
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
    """How many due entries a function of *memory* MiB holds: half of what the code leaves, at 1 KB
    an entry; the other half is for what is being read. None: it is no function.
    """
    if memory is None:
        return BUDGET
    return max((memory - _CODE_MIB) * 1024 // 2, _BUDGET_AT_LEAST)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001
    """Watch until this invocation's life ends; the next one, begun a minute before, goes on.

    Args:
        event: ``{"group": n}``, the constant input of the group's EventBridge rule.
        context: Lambda's; unused.
    """
    watcher = _watcher_of(int(event.get("group", 0)))
    return {"dispatched": watcher.live(WatcherSettings.read().life)}
