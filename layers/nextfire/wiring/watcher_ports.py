"""The adapters of a watcher."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from nextfire.adapters.aws.clients import SystemClock, dynamodb, sqs
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.settings import EmbeddedSettings, WatcherSettings
from nextfire.usecases.dispatch.ports import WatcherPorts

_THREADS = 16
_BATCHES = 16
"""Batches in flight. One takes a quarter of a second on AWS, and 20 ms of CPU time."""
_REQUESTS = 32


def watcher_ports(settings: WatcherSettings) -> WatcherPorts:
    """The adapters of a watcher."""
    if (local := EmbeddedSettings.find()) is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - functions do without SQLite

        return embedded.watcher_ports(settings, local)
    database, shards = dynamodb(), settings.write_shards
    # Several thread pools, so that no task waits for a task of the same pool (deadlock): batches in
    # flight submit single calls, and both submit concurrent requests. Writes, which wait while the
    # table is throttled, do not delay messages; and records of skipped occurrences, two calls each,
    # do not delay the reads of what is due.
    writes, sends = ThreadPoolExecutor(_REQUESTS), ThreadPoolExecutor(_REQUESTS)
    queues = {name: pool.queue_url for name, pool in settings.pools.items()}
    return WatcherPorts(
        jobs=DynamoDbJobStore(
            database, table=settings.jobs_table, due_table=settings.due_table, shards=shards
        ),
        due=DynamoDbDueStore(database, table=settings.due_table, shards=shards, executor=writes),
        runs=DynamoDbRunStore(
            database, table=settings.runs_table, due_table=settings.due_table, shards=shards
        ),
        queue=SqsRunQueue(sqs(), queues=queues, executor=sends),
        control=DynamoDbControlStore(database, table=settings.control_table),
        clock=SystemClock(),
        executor=ThreadPoolExecutor(_THREADS),
        lanes=ThreadPoolExecutor(_BATCHES),
        at_once=_BATCHES,
        readers=ThreadPoolExecutor(_THREADS),
    )
