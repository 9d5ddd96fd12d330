"""The executor's adapters, for the Lambda function and the worker."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from nextfire.adapters.aws.clients import (
    SystemClock,
    dynamodb,
    dynamodb_fail_fast,
    events,
    s3,
    secretsmanager,
    sqs,
    ssm,
    sts,
)
from nextfire.adapters.aws.event_bus import EventBridgeEventBus
from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.aws.wakers import EventWaker
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.packages.index_secret import IndexSecret
from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.adapters.s3.signatures import VerifyingScriptStore
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.scripts.metadata_block import close_metadata
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner, ScriptLimits
from nextfire.adapters.sqs.run_queue import SqsDeadLetters, SqsRunQueue
from nextfire.domain.packages import PUBLIC_INDEX
from nextfire.domain.ports.access import JobRole, Secrets
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import ScriptStore
from nextfire.domain.ports.targets import TargetRunner
from nextfire.domain.target import TargetKind
from nextfire.settings import (
    EmbeddedSettings,
    ExecutorSettings,
    credential_files,
    interpreter_environment,
    region_environment,
)
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.closed_pool import ClosedPool
from nextfire.targets.script.runner import ScriptTarget
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.wake_watchers import WakeNotices, WakeWatchers, WakingDue, WakingRuns
from nextfire.wiring.calls import call_target
from nextfire.wiring.executor import CHILDREN_AT_ONCE

_log = logging.getLogger(__name__)

_MEBI = 1024 * 1024


def executor_config(settings: ExecutorSettings, *, worker: str) -> ExecutorConfig:
    """The configuration of the executor named *worker*."""
    return ExecutorConfig(
        worker=worker,
        pool=settings.pool,
        lease=settings.lease,
        output_cap=settings.output_cap,
        log_cap=settings.log_cap,
        retention=settings.run_retention,
    )


def executor_ports(settings: ExecutorSettings, notices: WakeNotices) -> ExecutorPorts:
    """The adapters of an executor. Thread-safe.

    Raises:
        ValueError: Scripts cannot run here; the message says how to fix that.
    """
    if (local := EmbeddedSettings.find()) is not None:
        from nextfire.wiring import embedded  # noqa: PLC0415 - functions do without SQLite

        return embedded.executor_ports(settings, local)
    database, clock = dynamodb(), SystemClock()
    runs: RunStore = DynamoDbRunStore(
        database,
        table=settings.runs_table,
        due_table=settings.due_table,  # for skipped runs that are redriven
        shards=settings.write_shards,
    )
    due: DueStore = DynamoDbDueStore(
        database,
        table=settings.due_table,
        shards=settings.write_shards,
        executor=ThreadPoolExecutor(1),
    )
    if settings.control_table is not None:
        wake = WakeWatchers(
            DynamoDbControlStore(database, table=settings.control_table),
            EventWaker(events(), bus=settings.event_bus),
            clock,
            notices,
            shards=settings.write_shards,
            groups=settings.groups,
        )
        runs, due = cast("RunStore", WakingRuns(runs, wake)), cast("DueStore", WakingDue(due, wake))
    return ExecutorPorts(
        jobs=DynamoDbJobStore(database, table=settings.jobs_table),
        runs=runs,
        due=due,
        files=S3RunFiles(s3(), bucket=settings.outputs_bucket),
        target=_target(settings, clock),
        dead_letters=SqsDeadLetters(sqs(), queue_url=settings.dlq_url),
        events=EventBridgeEventBus(events(), bus=settings.event_bus),
        clock=clock,
        background=ThreadPoolExecutor(settings.slots, thread_name_prefix="log"),
        joins=DynamoDbJoinStore(database, table=settings.runs_table),
        queue=SqsRunQueue(
            sqs(), queues={settings.pool: settings.queue_url}, executor=ThreadPoolExecutor(1)
        ),
        children=ThreadPoolExecutor(CHILDREN_AT_ONCE, thread_name_prefix="child"),
        quotas=settings.quotas,
    )


def _target(settings: ExecutorSettings, clock: Clock) -> TargetRunner:
    target = _open_target(settings, clock)
    return target if settings.tenants is None else ClosedPool(target, settings.tenants)


def _open_target(settings: ExecutorSettings, clock: Clock) -> TargetRunner:
    role = _job_role(settings, clock)
    secrets = AwsSecrets(secretsmanager(), ssm(), pool=settings.pool)
    if settings.targets == "calls":
        table = settings.endpoints_table
        endpoints = table and DynamoDbEndpointStore(dynamodb_fail_fast(), table=table)
        return call_target(settings, secrets, role, clock, endpoints or None)
    return script_target(settings, S3ScriptStore(s3()), secrets, role, clock)


def script_target(
    settings: ExecutorSettings,
    scripts: ScriptStore,
    secrets: Secrets,
    role: JobRole | None,
    clock: Clock,
) -> TargetRunner:
    """The runner of the targets of a pool of scripts.

    Raises:
        ValueError: Scripts cannot run here; the message says how to fix that.
    """
    if settings.metadata == "closed" and (still_open := close_metadata()):
        _log.warning("metadata is open to scripts: %s", still_open.reason)
    script = ScriptTarget(
        scripts=_scripts(settings, scripts),
        bucket=settings.scripts_bucket,
        runner=_runner(settings),
        secrets=secrets,
        job_role=role,
        clock=clock,
    )
    return TargetsByKind({TargetKind.SCRIPT: script})


def _runner(settings: ExecutorSettings) -> ProcessScriptRunner:
    return ProcessScriptRunner(
        interpreter=settings.interpreter,
        forks=settings.script_start == "fork",
        output_cap=settings.output_cap,
        environment=interpreter_environment(),
        limits=ScriptLimits(
            memory_bytes=settings.script_memory * _MEBI,
            processes=settings.script_processes,
            file_bytes=settings.script_file_size * _MEBI,
        ),
        packages=settings.packages,
        package_index=_package_index(settings),
        package_policy=settings.package_policy,
        egress=settings.egress,
        visible=settings.visible_folders,
        credentials=[Path(file) for file in credential_files()],
    )


def _scripts(settings: ExecutorSettings, stored: ScriptStore) -> ScriptStore:
    if not settings.trusted_signers:
        return stored
    return VerifyingScriptStore(stored, signers=settings.trusted_signers, pool=settings.pool)


def _package_index(settings: ExecutorSettings) -> PackageIndex:
    arn = settings.package_index_secret
    secret = None if arn is None else IndexSecret(arn, secretsmanager(), ssm())
    return PackageIndex(settings.package_index or PUBLIC_INDEX, secret)


def _job_role(settings: ExecutorSettings, clock: Clock) -> StsJobRole | None:
    if settings.job_role_arn is None:
        return None
    return StsJobRole(
        sts(),
        role_arn=settings.job_role_arn,
        pool=settings.pool,
        environment=region_environment(),
        clock=clock,
    )
