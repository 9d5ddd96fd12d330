"""The cost of a month of runs on AWS, item by item."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from nextfire_cli.cost.prices import HOURS_PER_MONTH, Cost, Usage, costs
from nextfire_cli.cost.usage import ASLEEP, AWAKE, ITEM_OVERHEAD, RUNS, RunUsage, WatchUsage

PoolKind = Literal["lambda", "fargate"]

DAYS_PER_MONTH = HOURS_PER_MONTH / 24
_SECONDS_PER_DAY = 86_400
_MIB_PER_GIB = 1024
_GB = 1e9

LAMBDA_CORE_MIB = 1769
"""Memory with which a function has one vCPU (Lambda developer guide, "Configure memory")."""
REQUEST_SECONDS = 0.005
"""Assumed duration of a request; DynamoDB documents "single-digit milliseconds"."""
IDLE_POLLS_PER_HOUR = 5 * 3600 / 20
"""Empty receives of an event source: five long polls at a time, 20 s each (AWS's blog on scaling
of SQS event sources; AWS documents no number)."""
METRICS_BYTES = 235
"""The line of metrics of an invocation, which is part of the measured log of a run."""
RETENTION_DAYS = 30
"""How long records of runs that succeed are kept, by default."""
JOB_BYTES = 1_500
"""A job with its due entry, as stored."""
LOG_MONTHS = 30 / DAYS_PER_MONTH
LOG_COMPRESSION = 0.15
"""Stored part of ingested logs, as the AWS pricing calculator assumes."""
SCRIPT_REUSE_SECONDS = 2
"""How long a process uses a script without asking S3 again."""
TASK_LOAD = 0.5
"""Part of a task's CPU that is in use."""
DUE_LOAD = 0.7
"""Part of a provisioned capacity that is in use on average; DynamoDB's auto scaling aims at it."""
DUE_READS = 0.06
"""Read units of a run in the table of due entries, in addition to the polls: measured at 200 runs a
second in a group; 0.01 at 10."""
DUE_ALARMS = 2
"""In addition, if the table of due entries has a provisioned capacity."""
AUDITED_PER_SECOND = 60
WATCHER_MIB = 144
WAKE_SECONDS = 0.3
"""Assumed duration of the calls of an invocation that finds nothing due."""
AUDITOR_MIB = 512
RUNS_PER_WATCHER = 200
"""Runs per second of a watcher of `WATCHER_MIB`: a twelfth of the measured 2,590 of one core."""
AWAKE_AROUND_RUN = 155
"""Seconds for which the watchers are awake around a lone run: from 125 s before to 30 s after."""
PROJECTOR_MIB = 512
PROJECTOR_WRITES = {0: 0.047, 100: 0.035}
"""Write units for each run, from this number of runs a second on: measured at 12 and at 100 (`make
bench NAME=across`)."""
PROJECTOR_CPU_MS = 0.2
"""For each run, measured in a process."""
PROJECTOR_WAITS = 4
"""Requests of an invocation, one after the other."""
PROJECTED_EVERY, PROJECTED_AT_ONCE = 9, 1_000
"""Seconds for which Lambda collects records of a shard, and how many it hands over at most."""
STREAM_SHARDS = 4
"""Assumed: of a table with the capacity of a new one, a shard for each partition."""
ALARMS = 12
"""Of the default stack; a test compares it with the template."""
IDLE_METRICS = 1
BUSY_METRICS = 7
"""Custom metrics with values: of a stack without jobs, and of one whose runs succeed."""


@dataclass(frozen=True, slots=True)
class DueCapacity:
    """Units per second of the table of due entries: the setting `dueCapacity`."""

    writes: int
    reads: int


@dataclass(frozen=True, slots=True)
class Load:
    """Runs of a month, spread evenly. `seconds`: duration of the script. `memory`: of its pool on
    Lambda, or its share of a task, in MiB. `batch_size`: messages of an invocation on Lambda.
    `recovery`: the runs table has point-in-time recovery (`runsRecovery`). `steady`: the table of
    due entries has a provisioned capacity (`dueCapacity`). `task_cpu`, `task_memory`: a Fargate
    task, in 1024ths of a core and in MiB. `measured`: usage of a run, by default that of `RUNS`.
    """

    jobs: int
    runs_per_day: float
    pool: PoolKind = "lambda"
    seconds: float = 0.0
    memory: int = 512
    batch_size: int = 1
    recovery: bool = True
    steady: bool = False
    task_cpu: int = 512
    task_memory: int = 2048
    measured: RunUsage | None = None

    @property
    def per_second(self) -> float:
        return self.runs_per_day / _SECONDS_PER_DAY

    @property
    def runs(self) -> float:
        """Runs in a month."""
        return self.runs_per_day * DAYS_PER_MONTH

    @property
    def usage(self) -> RunUsage:
        usage = self.measured or RUNS[self.pool]
        if self.pool == "fargate":
            return usage
        each = 1 / self.batch_size
        return replace(usage, receives=usage.receives * each, deletes=usage.deletes * each)

    @property
    def due_capacity(self) -> DueCapacity | None:
        """The capacity for this load, if it is `steady`: of writes for its runs; of reads for the
        polls, the runs, and an audit that takes a day.
        """
        if not self.steady:
            return None
        reads = _groups(self) * AWAKE.due_reads / 3600
        reads += self.per_second * DUE_READS + self.jobs / _SECONDS_PER_DAY
        writes = self.per_second * self.usage.due_writes
        return DueCapacity(max(1, math.ceil(writes / DUE_LOAD)), math.ceil(reads / DUE_LOAD))


@dataclass(frozen=True, slots=True)
class Bill:
    """A month in USD, without the free tier. `scripts`: what the user's own code costs."""

    scheduler: list[Cost]
    scripts: list[Cost]
    runs: float

    @property
    def usd(self) -> float:
        return sum(cost.usd for cost in self.scheduler)

    @property
    def usd_scripts(self) -> float:
        return sum(cost.usd for cost in self.scripts)

    @property
    def per_million(self) -> float:
        """USD per million runs, without the scripts."""
        return self.usd / self.runs * 1e6 if self.runs else 0.0


def bill(load: Load) -> Bill:
    """The cost of *load* in a month, with everything that the stack has by default."""
    awake = min(1.0, load.runs_per_day * AWAKE_AROUND_RUN / _SECONDS_PER_DAY)
    items = [
        *_tables(load),
        *_requests(load),
        *(_function(load) if load.pool == "lambda" else _tasks(load)),
        *watchers(AWAKE, part=awake, groups=_groups(load), steady=load.steady),
        *watchers(ASLEEP, part=1 - awake, steady=load.steady),
        *auditor(load),
        *_projector(load),
        *(idle_polls() if load.pool == "lambda" and load.per_second < 1 else ()),
        *monitoring(busy=load.runs_per_day > 0, steady=load.steady),
    ]
    return Bill(costs(items), costs([*_scripts(load), *_starts(load)]), load.runs)


def _tables(load: Load) -> Iterable[Usage]:
    usage, runs = load.usage, load.runs
    writes = usage.write_units
    if capacity := load.due_capacity:
        writes -= usage.due_writes
        yield Usage("due table: writes", "write unit hours", capacity.writes * HOURS_PER_MONTH)
        yield Usage("due table: reads", "read unit hours", capacity.reads * HOURS_PER_MONTH)
    yield Usage("tables: writes", "write units", runs * writes)
    yield Usage("tables: reads", "read units", runs * usage.read_units)
    kept = runs * usage.record_bytes * RETENTION_DAYS / DAYS_PER_MONTH
    stored = (kept + load.jobs * (JOB_BYTES + 2 * ITEM_OVERHEAD)) / _GB
    yield Usage(f"tables: storage, records for {RETENTION_DAYS} days", _TABLES, stored)
    if load.recovery:
        yield Usage("tables: point-in-time recovery", _RECOVERY, stored)


_TABLES = "GB-months of tables"
_RECOVERY = "GB-months of point-in-time recovery"


def _requests(load: Load) -> Iterable[Usage]:
    usage, runs = load.usage, load.runs
    yield Usage("queues", "SQS FIFO requests", runs * usage.queue_requests)
    processes = max(5.0, 2 * load.per_second * (load.seconds + _overhead_seconds(load)))
    gets = min(1.0, processes / SCRIPT_REUSE_SECONDS / load.per_second) if runs else 0.0
    yield Usage("scripts: one script for all jobs", "S3 GET requests", runs * gets)
    # Lambda's own lines of an invocation are off (`SystemLogLevel` WARN).
    shared = METRICS_BYTES * (1 - 1 / load.batch_size) if load.pool == "lambda" else 0
    logs = runs * (usage.log_bytes - shared) / _GB
    yield Usage("logs", "GB of logs", logs)
    yield Usage("logs: storage", "GB-months of logs", logs * LOG_COMPRESSION * LOG_MONTHS)


def _overhead_seconds(load: Load) -> float:
    """Duration of an invocation of a pool on Lambda, without its script."""
    return _on_lambda(load, load.usage.cpu_ms) + load.usage.waits * REQUEST_SECONDS


def _on_lambda(load: Load, cpu_ms: float) -> float:
    """Seconds that *cpu_ms* of one core take in a function."""
    return cpu_ms / 1000 * LAMBDA_CORE_MIB / load.memory


def _function(load: Load) -> Iterable[Usage]:
    yield Usage("executor: invocations", "Lambda requests", load.runs / load.batch_size)
    gb_s = load.runs * _overhead_seconds(load) * load.memory / _MIB_PER_GIB
    yield Usage("executor: before and after scripts", "GB-s on arm64", gb_s)


def _tasks(load: Load) -> Iterable[Usage]:
    """The tasks' time that scripts do not use."""
    hours = _task_hours(load, load.usage.cpu_ms)
    yield Usage("workers: before and after scripts", "Fargate vCPU-h on arm64", hours)
    yield Usage("workers: their memory", "Fargate GB-h on arm64", hours * _gb_per_vcpu(load))


def _task_hours(load: Load, cpu_ms: float) -> float:
    """The vCPU-hours of tasks, without scripts, if each run takes *cpu_ms* of one core. A pool has
    a task as long as it has runs.
    """
    used = load.runs * cpu_ms / 1000 / 3600 / TASK_LOAD
    cpus = load.task_cpu / 1024
    least = HOURS_PER_MONTH * cpus * min(1.0, load.runs_per_day * 600 / _SECONDS_PER_DAY)
    return max(used, least - sum(use.amount for use in _scripts(load) if "vCPU" in use.unit))


def _gb_per_vcpu(load: Load) -> float:
    return load.task_memory / load.task_cpu


def _starts(load: Load) -> Iterable[Usage]:
    """What it takes to start the interpreters of scripts: of tasks, what is not left of the time
    that they have in any case.
    """
    start = load.usage.start_ms
    if load.pool == "lambda":
        gb_s = load.runs * _on_lambda(load, start) * load.memory / _MIB_PER_GIB
        yield Usage(_STARTS, "GB-s on arm64", gb_s)
        return
    hours = _task_hours(load, load.usage.cpu_ms + start) - _task_hours(load, load.usage.cpu_ms)
    yield Usage(_STARTS, "Fargate vCPU-h on arm64", hours)
    yield Usage(f"{_STARTS}, memory", "Fargate GB-h on arm64", hours * _gb_per_vcpu(load))


_STARTS = "scripts: start of their interpreters"


def _scripts(load: Load) -> list[Usage]:
    gib = load.memory / _MIB_PER_GIB
    seconds = load.runs * load.seconds
    if load.pool == "lambda":
        return [Usage("scripts", "GB-s on arm64", seconds * gib)]
    hours = seconds / 3600 / TASK_LOAD
    share = load.memory / load.task_memory
    return [
        Usage("scripts", "Fargate vCPU-h on arm64", hours * share * load.task_cpu / 1024),
        Usage("scripts: memory", "Fargate GB-h on arm64", hours * gib),
    ]


def _groups(load: Load) -> int:
    return max(1, math.ceil(load.per_second / RUNS_PER_WATCHER))


def watchers(
    usage: WatchUsage, *, part: float = 1.0, groups: int = 1, steady: bool = False
) -> Iterable[Usage]:
    """The watchers of *groups* groups for *part* of a month. *steady*: without their reads of the
    due table, whose capacity is provisioned.
    """
    if not part:
        return
    what = "watchers, awake" if usage is AWAKE else "watchers, asleep"
    hours = part * HOURS_PER_MONTH * groups
    seconds = usage.seconds + usage.invocations * WAKE_SECONDS
    gb_s = seconds * hours * WATCHER_MIB / _MIB_PER_GIB
    yield Usage(what, "GB-s on arm64", gb_s)
    yield Usage(what, "Lambda requests", usage.invocations * hours)
    reads = usage.read_units - (usage.due_reads if steady else 0)
    yield Usage(f"{what}: polls", "read units", reads * hours)
    yield Usage(f"{what}: leases, cursors", "write units", usage.write_units * hours)
    yield Usage(f"{what}: room in queues", "SQS FIFO requests", usage.queue_requests * hours)
    yield Usage(f"{what}: metrics' lines", "GB of logs", usage.log_bytes * hours / _GB)


def auditor(load: Load) -> Iterable[Usage]:
    """A visit of each job a day, which reads its runs of two days; and 96 wake-ups a day."""
    visits = load.jobs * DAYS_PER_MONTH
    read = 2 * load.runs * load.usage.record_bytes / 4096
    items = 1 if load.steady else 2  # the job, and the slot of its next entry
    yield Usage("auditor: jobs and their runs", "read units", items * visits + read)
    gb_s = (visits / AUDITED_PER_SECOND + 4 * HOURS_PER_MONTH * 0.05) * AUDITOR_MIB / _MIB_PER_GIB
    yield Usage("auditor", "GB-s on arm64", gb_s)
    yield Usage("auditor", "Lambda requests", 4 * HOURS_PER_MONTH)


def _projector(load: Load) -> Iterable[Usage]:
    """What looks across jobs: claim and end of each run come through the stream of the table."""
    records = 2 * load.per_second
    invocations = max(min(STREAM_SHARDS / PROJECTED_EVERY, records), records / PROJECTED_AT_ONCE)
    seconds = DAYS_PER_MONTH * _SECONDS_PER_DAY
    cpu = load.runs * PROJECTOR_CPU_MS / 1000 * LAMBDA_CORE_MIB / PROJECTOR_MIB
    waits = invocations * seconds * PROJECTOR_WAITS * REQUEST_SECONDS
    writes = load.runs * PROJECTOR_WRITES[100 if load.per_second >= 100 else 0]  # noqa: PLR2004
    yield Usage("projector: the list of all runs", "write units", writes)
    yield Usage("projector", "GB-s on arm64", (cpu + waits) * PROJECTOR_MIB / _MIB_PER_GIB)
    yield Usage("projector", "Lambda requests", invocations * seconds)


def idle_polls() -> Iterable[Usage]:
    """The polls of the event source of a Lambda pool without messages."""
    polls = IDLE_POLLS_PER_HOUR * HOURS_PER_MONTH
    yield Usage("executor: polls of an empty queue", "SQS FIFO requests", polls)


def monitoring(*, busy: bool, steady: bool = False) -> Iterable[Usage]:
    """Alarms, dashboard and metrics of a stack with or without runs. *steady*: with the alarms on
    the provisioned capacity of the due table.
    """
    yield Usage("alarms", "alarms", ALARMS + (DUE_ALARMS if steady else 0))
    yield Usage("alarm over them", "composite alarms", 1)
    yield Usage("dashboard", "dashboards", 1)
    yield Usage("metrics", "custom metrics", BUSY_METRICS if busy else IDLE_METRICS)
