"""The seconds that an invocation of the `calls` function takes per call, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.messages import send
from benchmarks.report import tell
from benchmarks.stack import Registrar
from nextfire.adapters.files.stack_folder import DATABASE
from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.due_store import SqliteDueStore
from nextfire.adapters.sqlite.job_store import SqliteJobStore
from nextfire.domain.ports.queues import RunQueue
from nextfire.settings import EmbeddedSettings, ExecutorSettings
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.concurrent_batch import ConcurrentBatch
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.message_batch import MessageBatch
from nextfire.wiring.embedded import inbox
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.executor import build_executor
from nextfire_cli.local.embedded_settings import shared_settings, worker_settings

POOL = "calls"
INVOCATIONS = 20
BATCH = 10
_LEASE = timedelta(seconds=60)


class _Quiet:
    """`MessageNotices` that report trouble only."""

    def wake_up_lost(self, why: Exception) -> None:
        tell(str(why))

    def warn(self, what: str, why: Exception | str) -> None:
        tell(f"{what}: {why}")

    fail = warn

    def handled(self, handled: Handled) -> None:
        if handled.disposition is not Disposition.ACKNOWLEDGE:
            tell(handled.reason)


def lambda_seconds(folder: Path, url: str) -> tuple[float, float]:
    """Seconds per call in batches of `BATCH`, and of one call at a time.

    Runs what the function runs, on the embedded stack's durable adapters in *folder*: each write is
    on disk before the next step. The emulated stack serves one request after the other, so that
    calls of a batch would wait for each other there, and not on AWS.

    Args:
        folder: Keeps the database and all else.
        url: What to call.
    """
    _become_worker(folder)
    settings, local = ExecutorSettings.read(), EmbeddedSettings.read()
    ports = executor_ports(settings, _Quiet())
    batch = build_executor(ports, executor_config(settings, worker="benchmark"), _Quiet())
    runs = _Runs(Database(folder / DATABASE), url, ports.queue)
    arrived = inbox(settings, local)

    def take(batch: MessageBatch[Any] | ConcurrentBatch[Any], size: int, number: int) -> float:
        """Process *number* batches of *size* calls. Returns the seconds per call."""
        runs.send(number * size)
        seconds = 0.0
        for _ in range(number):
            received = arrived.receive(size, wait=timedelta(seconds=5), hidden_for=_LEASE)
            began = time.perf_counter()
            stay = batch.carry_out(received, stopping=lambda: False)
            seconds += time.perf_counter() - began
            if len(received) < size or stay:
                raise RuntimeError(f"{size} calls expected, {len(received)} received: {stay}")
            arrived.acknowledge(received)
        return seconds / (number * size)

    with ThreadPoolExecutor(BATCH) as threads:
        concurrent: ConcurrentBatch[Any] = ConcurrentBatch(batch, threads)
        take(concurrent, BATCH, 1)  # starts threads, loads the job's definition
        tell(f"{INVOCATIONS} invocations with {BATCH} calls")
        together = take(concurrent, BATCH, INVOCATIONS)
        tell(f"{INVOCATIONS} invocations with one call")
        alone = take(batch, 1, INVOCATIONS)
    return together, alone


def _become_worker(folder: Path) -> None:
    """Give this process the environment of a worker of an embedded stack in *folder*."""
    pools = worker_settings([], None)
    settings: Mapping[str, str] = {
        **shared_settings(pools),
        **pools[POOL],
        "embedded_folder": str(folder),
        "embedded_url": "http://127.0.0.1",
    }
    os.environ |= {f"NEXTFIRE_{name.upper()}": value for name, value in settings.items()}


class _Runs:
    """Sends runs of one MANUAL job that calls *url*."""

    def __init__(self, database: Database, url: str, queue: RunQueue) -> None:
        self._queue = queue
        self._at = datetime.now(UTC).replace(microsecond=0)
        due = SqliteDueStore(database, shards=1)
        unsent = FindUnsent(due, SqliteControlStore(database), read_shards=1)
        limits = Limits(pools={POOL: timedelta(hours=1)}, scripts_bucket="scripts")
        manage = ManageJobs(SqliteJobStore(database, shards=1), limits, unsent)
        document = {"type": "MANUAL", "target": {"pool": POOL, "http": {"url": url}}}
        self._job = Registrar(manage, "benchmark").register("callback", document, self._at)

    def send(self, count: int) -> None:
        """Send *count* runs that are due now."""
        now = datetime.now(UTC).replace(microsecond=0)
        keys = []
        for _ in range(count):
            self._at = max(self._at + timedelta(milliseconds=1), now)
            keys.append(self._job.run_key(self._at))
        send(self._queue, keys, pool=POOL)
