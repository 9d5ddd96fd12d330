"""The watcher on moto: its steps on a clock that tests move, and the SDK clients that it uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError  # noqa: TID251 — what the SDK raises

from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.sqs.run_queue import SqsRunQueue
from nextfire.domain.due import DueEntry
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import run_id
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports.control import Lease
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.dispatch.tick import Dispatch
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.watch import Watch
from tests.builders import a_fire, a_job, at
from tests.fakes import Clock, InlineExecutor
from tests.integration.deployment import SHARDS, Deployment, Proxy

SECOND = timedelta(seconds=1)


@dataclass
class Stand:
    """A deployment with watchers that a test steps, and the SDK clients that they use."""

    system: Deployment
    clock: Clock
    database: Proxy
    queues: Proxy
    watch: Watch = field(init=False)
    reports: list[TickReport] = field(default_factory=list)
    errors: list[UnavailableError] = field(default_factory=list)

    def __post_init__(self) -> None:
        limits = Limits({"default": timedelta(minutes=14)}, self.system.bucket)
        unsent = FindUnsent(
            self.system.due,
            DynamoDbControlStore(self.system.database, table=self.system.control_table),
            read_shards=SHARDS,
        )
        self.jobs = ManageJobs(self.system.jobs, limits, unsent)
        self.watch = self.new_watch("first")

    def new_watch(self, holder: str) -> Watch:
        database: Any = self.database
        queues: Any = self.queues
        system = self.system
        control = DynamoDbControlStore(database, table=system.control_table)

        def dispatcher(lease: Lease) -> Dispatch:
            return Dispatch(
                WatcherPorts(
                    jobs=DynamoDbJobStore(database, table=system.jobs_table),
                    due=DynamoDbDueStore(
                        database, table=system.due_table, shards=SHARDS, executor=InlineExecutor()
                    ),
                    runs=DynamoDbRunStore(
                        database, table=system.runs_table, due_table=system.due_table, shards=SHARDS
                    ),
                    queue=SqsRunQueue(
                        queues, queues={"default": system.queue_url}, executor=InlineExecutor()
                    ),
                    control=control,
                    clock=self.clock,
                    executor=InlineExecutor(),
                    lanes=InlineExecutor(),
                ),
                shards=range(SHARDS),
                epoch=lease.epoch,
                shares=Shares(backlogs={"default": 1_000}),
            )

        return Watch(HoldLease(control, group=0, holder=holder), dispatcher)

    def store(self, *jobs: Job) -> None:
        """Store *jobs*, each with its first due entry."""
        for job in jobs:
            first = job.next_after(job.effective_from)
            assert first is not None
            entry = a_fire(job, first)
            former = self.system.jobs.get(job.key)
            now = self.clock.now()
            assert self.system.jobs.create(job, entry, now, former=former) is None

    def put(self, *entries: DueEntry) -> None:
        assert self.system.due.put(entries, self.clock.now()) == set(entries)

    def go_to(self, until: datetime, *others: Watch) -> None:
        """Step the watch and *others* at the instants that they ask for, up to *until*."""
        again = {watch: self.clock.now() for watch in (self.watch, *others)}
        for _ in range(10_000):
            now = self.clock.now()
            for watch, again_at in again.items():
                if again_at > now:
                    continue
                try:
                    report, again[watch] = watch.step(now)
                except UnavailableError as error:
                    self.errors.append(error)
                    report, again[watch] = None, now + SECOND / 4
                if report is not None:
                    self.reports.append(report)
            if now >= until and min(again.values()) > now:
                return
            self.clock.move_to(max(now, min(until, *again.values())))
        raise AssertionError("the watcher never reaches the end")

    def received(self) -> list[RunMessage]:
        return [decode_message(message["Body"]) for message in self.system.receive()]

    def fires(self, job: Job) -> list[str]:
        """The sort keys of the FIRE entries of *job*, for all versions."""
        return sorted(
            item["entry"]["S"]
            for item in self.system.due_items()
            if item["job_id"]["S"] == job.key.job_id and item["bucket"]["S"] != "quarantine"
        )

    @property
    def notes(self) -> list[str]:
        return [note for report in self.reports for note in report.notes]

    @property
    def lateness(self) -> list[timedelta]:
        return [run.lateness for report in self.reports for run in report.dispatched]


@pytest.fixture
def stand(system: Deployment) -> Stand:
    return Stand(system, Clock(at("11:59:57")), Proxy(system.database), Proxy(system.queues))


def minutely(job_id: str = "report", since: str = "11:59:30", **more: Any) -> Job:
    """A job that is due each minute, with its own uid."""
    uid = f"{job_id.replace('-', ''):0>8}"
    return a_job(job_id, schedule="* * * * *", since=at(since), **{"uid": uid} | more)


def refusal(code: str) -> Callable[..., Any]:
    """Answers an operation with the error *code*."""

    def refuse(_real: object, _request: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": code}}, "Operation")

    return refuse


def once(proxy: Proxy, operation: str, do: Callable[..., Any]) -> None:
    """Replace the next call of *operation* with *do*."""

    def first(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        del proxy.instead[operation]
        return do(real, request)

    proxy.instead[operation] = first


def run_ids(job: Job, *times: str) -> list[str]:
    return [run_id(job.uid, at(time)) for time in times]
