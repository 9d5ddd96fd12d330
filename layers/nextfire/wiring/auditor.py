"""The adapters of the auditor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from nextfire.adapters.aws.clients import SystemClock, dynamodb, sqs
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.settings import AuditorSettings, EmbeddedSettings
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.audit_report import AuditReport

_THREADS = 16

Continue = Callable[[datetime, int, bool], Iterator[AuditReport]]
"""Continues the audit until an instant, as a segment; True: begins one."""


def auditor(settings: AuditorSettings) -> Continue:
    """The auditor of this process."""
    audit, segments = audit_jobs(settings), settings.audit_segments
    if segments == 1:
        return lambda until, _, restart: audit.continue_audit(until, restart=restart)
    parts = audit.in_segments(segments)
    return lambda until, segment, restart: parts.continue_audit(
        until, segment=segment, restart=restart
    )


def audit_jobs(settings: AuditorSettings) -> AuditJobs:
    """The use case of the auditor, with its adapters."""
    if (local := EmbeddedSettings.find()) is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - functions do without SQLite

        return embedded.audit_jobs(settings, local)
    # Batches have a separate pool, so that a check never waits for a task in its own pool.
    batches = ThreadPoolExecutor(_THREADS)
    database = dynamodb()
    queues = {name: pool.queue_url for name, pool in settings.pools.items()}
    return AuditJobs(
        jobs=DynamoDbJobStore(database, table=settings.jobs_table),
        due=DynamoDbDueStore(
            database, table=settings.due_table, shards=settings.write_shards, executor=batches
        ),
        runs=DynamoDbRunStore(database, table=settings.runs_table),
        queue=SqsRunQueue(sqs(), queues=queues, executor=batches),
        control=DynamoDbControlStore(database, table=settings.control_table),
        joins=DynamoDbJoinStore(database, table=settings.runs_table),
        clock=SystemClock(),
        executor=ThreadPoolExecutor(_THREADS),
        pools=settings.pools,
        write_shards=settings.write_shards,
        read_shards=settings.read_shards,
        every=settings.audit_every,
        job_retention=settings.job_retention,
    )
