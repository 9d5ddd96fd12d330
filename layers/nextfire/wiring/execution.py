"""The executor's core with its adapters, for its two hosts."""

from __future__ import annotations

import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from nextfire.adapters.aws import SystemClock, dynamodb, s3, sqs
from nextfire.adapters.due_store import DynamoDbDueStore
from nextfire.adapters.job_store import DynamoDbJobStore
from nextfire.adapters.run_queue import SqsDeadLetters
from nextfire.adapters.run_store import DynamoDbRunStore
from nextfire.adapters.script_runner import ProcessScriptRunner
from nextfire.adapters.script_store import S3ScriptStore
from nextfire.settings import ExecutorSettings, interpreter_environment
from nextfire.usecases.execute_run import ExecuteRun, Terms


def build_execute_run(settings: ExecutorSettings, *, worker: str) -> ExecuteRun:
    """An `ExecuteRun` that may be used by several threads at once."""
    database = dynamodb()
    return ExecuteRun(
        jobs=DynamoDbJobStore(database, table=settings.jobs_table),
        runs=DynamoDbRunStore(database, table=settings.runs_table),
        due=DynamoDbDueStore(
            database,
            table=settings.due_table,
            shards=settings.write_shards,
            executor=ThreadPoolExecutor(1),
        ),
        scripts=S3ScriptStore(s3()),
        runner=ProcessScriptRunner(
            interpreter=sys.executable,
            output_cap=settings.output_cap,
            environment=interpreter_environment(),
        ),
        dead_letters=SqsDeadLetters(sqs(), queue_url=settings.dlq_url),
        clock=SystemClock(),
        terms=Terms(
            worker=worker,
            pool=settings.pool,
            scripts_bucket=settings.scripts_bucket,
            lease=settings.lease,
        ),
        new_token=lambda: uuid.uuid4().hex,
    )
