"""The whole system on fakes, advanced by hand. Scenarios read as timelines.

Times are written ``12:00`` or ``12:00:30``, UTC, on the day of `builders.NOON`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.due import DueEntry
from nextfire.domain.ids import JobKey
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports.access import JobRole
from nextfire.domain.ports.targets import TargetRunner
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.removed_pools import Pools
from nextfire.domain.retention import DEFAULT_RETENTION
from nextfire.domain.run import Run, RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases.cancel_sequence import CancelSequence
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.dispatch.tick import BUDGET, Dispatch
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.read_quotas import ReadQuotas
from nextfire.usecases.redrive_sequence import RedriveSequence
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.skip_next import SkipNext
from tests.builders import a_definition, at, job_key
from tests.fakes import (
    Clock,
    Faults,
    InlineExecutor,
    Killed,
    MemoryScriptRunner,
    Script,
    Stores,
    memory_stores,
)
from tests.workers import Worker

BUCKET = "scripts"
POOLS = {"default": timedelta(minutes=10), "batch": timedelta(hours=11)}


class World:
    """Stores, queues, a clock, one watcher, and any number of workers, by name."""

    def __init__(
        self,
        now: str = "11:59",
        *,
        executor: Executor | None = None,
        shards: int = 1,
        stores: Stores | None = None,
        clock: Clock | None = None,
        first_epoch: int = 1,
        quotas: TenantQuotas = NO_QUOTAS,
    ) -> None:
        """*stores*, *clock*: those of another world, to continue from; *first_epoch*: then a later
        one.
        """
        self.clock = clock or Clock(at(now))
        self.faults = Faults()
        stores = stores or memory_stores(self.clock, POOLS, shards=shards)
        self.due = stores.due
        self.jobs = stores.jobs
        self.control = stores.control
        self.queue = stores.queue
        self.dead_letters = stores.dead_letters
        self.runs = stores.runs
        self.joins = stores.joins
        self.files = stores.files
        self.events = stores.events
        self.secrets = stores.secrets
        self.script_store = stores.scripts
        self.bucket = BUCKET
        self.output_cap = 1000
        self.log_cap = 16 * 1024 * 1024
        self.retention = DEFAULT_RETENTION
        self.runner = MemoryScriptRunner(self.clock)
        self.job_role: JobRole | None = None
        self.call_targets: dict[TargetKind, TargetRunner] = {}
        self.shards = shards
        self.shares = Shares(quotas=quotas)
        self.pools = Pools()
        self._executor = executor or InlineExecutor()
        self.children: Executor = InlineExecutor()
        self._uids = count(1)
        self._epochs = count(first_epoch)
        self.manage = ManageJobs(
            self.faults.through(self.jobs, "jobs"),
            Limits(POOLS, BUCKET, quotas),
            FindUnsent(
                self.faults.through(self.due, "due"),
                self.faults.through(self.control, "control"),
                read_shards=shards,
            ),
        )
        self.backfills = ManageBackfills(
            self.faults.through(self.jobs, "jobs"),
            FindUnsent(
                self.faults.through(self.due, "due"),
                self.faults.through(self.control, "control"),
                read_shards=shards,
            ),
            POOLS,
        )
        jobs, runs = self.faults.through(self.jobs, "jobs"), self.faults.through(self.runs, "runs")
        self.find_run = FindRun(
            jobs,
            runs,
            retention=timedelta(days=90),
            clock=self.clock,
            joins=stores.joins,
            quotas=ReadQuotas(jobs, self.faults.through(self.control, "control"), quotas, {}),
        )
        self.manage_runs = ManageRuns(
            jobs, runs, self.find_run, pools=POOLS, clock=self.clock, executor=InlineExecutor()
        )
        self.request_runs = RequestRuns(
            jobs, runs, self.find_run, pools=POOLS, clock=self.clock, quotas=quotas
        )
        self.cancel_sequence = CancelSequence(
            jobs, runs, self.find_run, clock=self.clock, executor=InlineExecutor()
        )
        self.sequences = RedriveSequence(
            jobs, runs, pools=POOLS, clock=self.clock, executor=InlineExecutor()
        )
        self.skips = SkipNext(jobs, runs, clock=self.clock)
        self.watcher = self.new_watcher()

    # Time

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def advance(self, **units: float) -> None:
        self.clock.advance(**units)

    def at(self, time: str) -> None:
        """Move the clock to *time*."""
        self.clock.move_to(at(time))

    # Faults

    def dies(self, calls: int, act: Callable[[], object]) -> bool:
        """Do *act* in a process that is killed after *calls* calls. Return whether it died."""
        self.faults.kill_after(calls)
        try:
            act()
        except Killed:
            return True
        finally:
            self.faults.clear()
        return False

    # Jobs

    def register(
        self, job_id: str = "report", *, tenant: str = "acme", uid: str = "", **fields: Any
    ) -> Job:
        """Register a job, hourly by default. *fields* are fields of the definition."""
        uid = uid or f"uid{next(self._uids):05d}"
        return self.manage.register(
            job_key(job_id, tenant), a_definition(**fields), uid=uid, now=self.now
        )

    def change(self, job: Job, **fields: Any) -> Job:
        """Change *fields*, in the API's spelling, of a job's definition."""

        def edit(definition: JobDefinition) -> JobDefinition:
            return JobDefinition.model_validate(definition.document() | fields)

        return self.manage.change(job.key, edit, now=self.now)

    def delete(self, job: Job) -> Job:
        return self.manage.delete(job.key, now=self.now)

    def pause(self, job: Job, reason: str | None = None) -> Job:
        return self.manage.pause(job.key, reason, now=self.now)

    def resume(self, job: Job) -> Job:
        return self.manage.resume(job.key, now=self.now)

    def job(self, key: JobKey) -> Job:
        return self.manage.get(key)

    # The watcher

    def new_watcher(self) -> Dispatch:
        """A watcher without state, as after a restart, with a later epoch."""
        self.watcher = self.dispatcher(next(self._epochs))
        return self.watcher

    def dispatcher(
        self,
        epoch: int,
        *,
        executor: Executor | None = None,
        lanes: Executor | None = None,
        at_once: int = 1,
        budget: int = BUDGET,
    ) -> Dispatch:
        """The dispatcher of the holder of *epoch*. It handles *at_once* batches concurrently on
        *lanes*.
        """
        through = self.faults.through
        ports = WatcherPorts(
            jobs=through(self.jobs, "jobs"),
            due=through(self.due, "due"),
            runs=through(self.runs, "runs"),
            queue=through(self.queue, "queue"),
            control=through(self.control, "control"),
            clock=self.clock,
            executor=executor or self._executor,
            lanes=lanes or InlineExecutor(),
            at_once=at_once,
        )
        return Dispatch(
            ports,
            shards=range(self.shards),
            epoch=epoch,
            shares=self.shares,
            budget=budget,
            pools=self.pools,
        )

    def remove_pool(self, pool: str) -> None:
        """Deploy settings without *pool*: its queue is deleted, watchers are new."""
        del self.queue.queues[pool]
        self.pools = Pools(POOLS.keys() - {pool})
        self.new_watcher()

    def tick(self) -> TickReport:
        """Poll and release until the cursors stop moving and nothing is due."""
        report, were = TickReport(), None
        while were != self.control.moved:
            were = dict(self.control.moved)
            report += self.watcher.poll(self.now)
            while self.watcher.next_at is not None and self.watcher.next_at <= self.now:
                report += self.watcher.release(self.now)
        return report

    def tick_at(self, time: str) -> TickReport:
        self.at(time)
        return self.tick()

    @property
    def sent(self) -> list[str]:
        """The accepted messages, including repetitions, formatted by `describe`."""
        return [describe(message) for message in self.queue.log]

    @property
    def queued(self) -> list[str]:
        """The messages in the queue of the pool `default`, formatted by `describe`."""
        return [describe(decode_message(body)) for body in self.queue.queues["default"].bodies]

    @property
    def entries(self) -> list[DueEntry]:
        return self.due.entries

    # Workers

    def worker(self, name: str = "a", *, pool: str = "default") -> Worker:
        return Worker(self, name, pool)

    def script(self, **behaviour: Any) -> None:
        """Set the behaviour of the next script; see `Script`."""
        self.runner.scripts.append(Script(**behaviour))

    def tick_and_work(self, *times: str) -> None:
        """Let watcher and worker work at *times*."""
        for time in times:
            self.tick_at(time)
            self.worker().work()

    def advance_and_work(self, **units: float) -> None:
        """Let watcher and worker work after that time."""
        self.advance(**units)
        self.tick()
        self.worker().work()

    def run(self, job: Job, time: str) -> Run:
        """The record of *job*'s run scheduled for *time*."""
        return self.runs.all[job.run_key(at(time))]

    def record(self, job: Job, time: str) -> Run | None:
        """The record of *job*'s run scheduled for *time*, if it has one."""
        return self.runs.get(job.run_key(at(time)))

    def state(self, job: Job, time: str) -> RunState | None:
        """The state of *job*'s run scheduled for *time*. None: it has no record."""
        run = self.record(job, time)
        return None if run is None else run.state


def started(now: str) -> World:
    """A world at *now*, whose watcher has ticked once and so has its cursors."""
    world = World(now)
    world.tick()
    return world


def describe(message: RunMessage) -> str:
    """``report 12:00``; ``report 12:00:30 #2`` for a second dispatch."""
    scheduled_at = message.key.scheduled_at
    time = f"{scheduled_at:%H:%M:%S}".removesuffix(":00")
    return f"{message.job_id} {time}" + (f" #{message.dispatch}" if message.dispatch > 1 else "")
