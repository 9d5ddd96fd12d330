"""The adapters of all parts of the embedded stack: SQLite and files in one folder.

Only processes of that stack import this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from pathlib import Path

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.files.run_files import FileRunFiles
from nextfire.adapters.files.script_shelf import FileScriptShelf
from nextfire.adapters.files.script_store import FileScriptStore
from nextfire.adapters.files.secrets import FileSecrets
from nextfire.adapters.files.stack_folder import DATABASE, OUTPUTS, SCRIPTS, SECRETS, UPLOAD_KEY
from nextfire.adapters.sqlite.bucket_store import SqliteBucketStore
from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.endpoint_store import SqliteEndpointStore
from nextfire.adapters.sqlite.events import SqliteEvents
from nextfire.adapters.sqlite.expiry import remove_expired
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.adapters.sqlite.join_store import SqliteJoinStore
from nextfire.adapters.sqlite.key_store import SqliteKeyStore
from nextfire.adapters.sqlite.overview import SqliteRunOverview
from nextfire.adapters.sqlite.request_store import SqliteRequestStore
from nextfire.adapters.sqlite.run_queue import (
    SqliteDeadLetters,
    SqliteDelivery,
    SqliteInbox,
    SqliteRunQueue,
)
from nextfire.adapters.sqlite.run_store import SqliteRunStore
from nextfire.adapters.worker.journal import HeldMessage
from nextfire.domain.ports.access import KeyStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.retention import DEFAULT_RETENTION
from nextfire.settings import (
    ApiSettings,
    AuditorSettings,
    EmbeddedSettings,
    ExecutorSettings,
    WatcherSettings,
)
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.wiring.api import ApiPorts
from nextfire.wiring.calls import call_target
from nextfire.wiring.execution import script_target
from nextfire.wiring.executor import CHILDREN_AT_ONCE

_THREADS = 2
"""SQLite writes one transaction at a time, so more threads would only wait."""
_FILES_KEPT = DEFAULT_RETENTION.longest + timedelta(days=7)
"""As on AWS: a week longer than the records that name them."""


class OneClock:
    """`ServiceClock` of a stack on one machine, whose queues use the same clock."""

    def deviation(self) -> timedelta:
        return timedelta()


@cache
def _database(folder: Path) -> Database:
    return Database(folder / DATABASE)


def key_store(local: EmbeddedSettings) -> KeyStore:
    """The store of the API keys."""
    return SqliteKeyStore(_database(local.embedded_folder))


def run_store(local: EmbeddedSettings) -> RunStore:
    """The store of the runs."""
    return SqliteRunStore(_database(local.embedded_folder))


def script_shelf(settings: ApiSettings, local: EmbeddedSettings) -> FileScriptShelf:
    """The store of scripts that the API and its uploads use."""
    return FileScriptShelf(
        local.embedded_folder / SCRIPTS,
        bucket=settings.scripts_bucket,
        address=local.embedded_url,
        key=(local.embedded_folder / UPLOAD_KEY).read_bytes(),
        clock=SystemClock(),
    )


def api_ports(settings: ApiSettings, local: EmbeddedSettings) -> ApiPorts:
    """The adapters of the API."""
    database, shards = _database(local.embedded_folder), settings.write_shards
    return ApiPorts(
        jobs=SqliteJobStore(database, shards=shards),
        runs=SqliteRunStore(database, shards=shards),
        due=SqliteDueStore(database, shards=shards),
        control=SqliteControlStore(database),
        keys=SqliteKeyStore(database),
        requests=SqliteRequestStore(database),
        buckets=SqliteBucketStore(database),
        endpoints=SqliteEndpointStore(database),
        files=FileRunFiles(local.embedded_folder / OUTPUTS),
        shelf=script_shelf(settings, local),
        note_change=lambda *_: None,  # no audit chain
        overview=SqliteRunOverview(database),
        joins=SqliteJoinStore(database),
    )


def watcher_ports(settings: WatcherSettings, local: EmbeddedSettings) -> WatcherPorts:
    """The adapters of a watcher."""
    database, shards, clock = (
        _database(local.embedded_folder),
        settings.write_shards,
        SystemClock(),
    )
    return WatcherPorts(
        jobs=SqliteJobStore(database, shards=shards),
        due=SqliteDueStore(database, shards=shards),
        runs=SqliteRunStore(database, shards=shards),
        queue=SqliteRunQueue(database, clock=clock, pools=settings.pools),
        control=SqliteControlStore(database),
        clock=clock,
        executor=ThreadPoolExecutor(_THREADS),
        lanes=ThreadPoolExecutor(_THREADS),
        at_once=_THREADS,
    )


def audit_jobs(settings: AuditorSettings, local: EmbeddedSettings) -> AuditJobs:
    """The use case of the auditor, with its adapters."""
    database, clock = _database(local.embedded_folder), SystemClock()
    return AuditJobs(
        jobs=SqliteJobStore(database, shards=settings.write_shards),
        due=SqliteDueStore(database, shards=settings.write_shards),
        runs=SqliteRunStore(database, shards=settings.write_shards),
        queue=SqliteRunQueue(database, clock=clock, pools=settings.pools),
        control=SqliteControlStore(database),
        joins=SqliteJoinStore(database),
        clock=clock,
        executor=ThreadPoolExecutor(_THREADS),
        pools=settings.pools,
        write_shards=settings.write_shards,
        read_shards=settings.read_shards,
        every=settings.audit_every,
        job_retention=settings.job_retention,
    )


def forget_files(local: EmbeddedSettings) -> int:
    """Remove the files of runs whose records have expired. Returns their number.

    Raises:
        UnavailableError: Some of them cannot be removed.
    """
    before = SystemClock().now() - _FILES_KEPT
    return FileRunFiles(local.embedded_folder / OUTPUTS).remove_before(before)


def forget_records(local: EmbeddedSettings) -> int:
    """Remove the rows of the database that have expired. Returns their number.

    Raises:
        UnavailableError: The disk is full, or not writable.
    """
    return remove_expired(_database(local.embedded_folder), SystemClock().now())


def executor_ports(settings: ExecutorSettings, local: EmbeddedSettings) -> ExecutorPorts:
    """The adapters of an executor. Thread-safe.

    Raises:
        ValueError: Scripts cannot run here; the message says how to fix that.
    """
    folder, clock = local.embedded_folder, SystemClock()
    database = _database(folder)
    values = FileSecrets(folder / SECRETS, pool=settings.pool)
    if settings.targets == "calls":
        endpoints = SqliteEndpointStore(database)
        target = call_target(settings, values, None, clock, endpoints)
    else:
        target = script_target(settings, FileScriptStore(folder / SCRIPTS), values, None, clock)
    return ExecutorPorts(
        jobs=SqliteJobStore(database),
        runs=SqliteRunStore(database),
        due=SqliteDueStore(database, shards=settings.write_shards),
        files=FileRunFiles(folder / OUTPUTS),
        target=target,
        dead_letters=SqliteDeadLetters(database, clock=clock, pool=settings.pool),
        events=SqliteEvents(database),
        clock=clock,
        background=ThreadPoolExecutor(settings.slots, thread_name_prefix="log"),
        joins=SqliteJoinStore(database),
        queue=SqliteRunQueue(database, clock=clock, pools=[settings.pool]),
        children=ThreadPoolExecutor(CHILDREN_AT_ONCE, thread_name_prefix="child"),
        quotas=settings.quotas,
    )


def inbox(settings: ExecutorSettings, local: EmbeddedSettings) -> SqliteInbox:
    """The queue of the executor's pool."""
    database = _database(local.embedded_folder)
    return SqliteInbox(database, clock=SystemClock(), pool=settings.pool)


def deliveries(held: Sequence[HeldMessage], local: EmbeddedSettings) -> list[SqliteDelivery]:
    """The deliveries of the messages *held*."""
    database, clock = _database(local.embedded_folder), SystemClock()
    found = []
    for each in held:
        number, _, receives = each.receipt_handle.partition(":")
        found.append(
            SqliteDelivery(
                database, clock, int(number), int(receives), each.body, each.group, each.token
            )
        )
    return found
