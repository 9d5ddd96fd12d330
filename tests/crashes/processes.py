"""The system's processes: the API, watchers, workers and Lambda executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from io import StringIO
from typing import Any, cast

import pytest

from functions.api import services as api
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.removed_pools import Pools
from nextfire.usecases import many_jobs
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_endpoints import ManageEndpoints
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.redrive_sequence import RedriveSequence
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.serve_pool import ServePool, Threads
from nextfire.usecases.skip_next import SkipNext
from nextfire.usecases.wake_watchers import WakingJobs, WakingRuns
from nextfire.wiring.executor import build_executor
from nextfire.wiring.watcher import WatcherConfig, build_watcher
from nextfire.wiring.worker import WorkerPorts, build_worker
from tests.builders import LEASE
from tests.crashes.adapters import Adapters
from tests.crashes.names import GONE, POOL
from tests.fakes import MemoryNotices
from tests.integration.deployment import Answer, http_event, identity, request_in_a_process

STEPS = 500
_LIMIT = timedelta(minutes=10)


class Api:
    """The API's process, which seeds the cursors first, like its handler."""

    def __init__(self, has: Adapters) -> None:
        limits = Limits(
            {POOL: _LIMIT, GONE: _LIMIT}, has.stack.system.bucket, quotas=has.stack.quotas
        )
        unsent = FindUnsent(has.due, has.control, read_shards=1)
        jobs = cast("JobStore", WakingJobs(has.jobs, has.wake))
        self.runs = runs = cast("RunStore", WakingRuns(has.runs, has.wake))
        self.jobs = ManageJobs(jobs, limits, unsent)
        self.backfills = ManageBackfills(jobs, unsent, [POOL])
        self.endpoints = ManageEndpoints(has.endpoints, [POOL])
        find = FindRun(jobs, runs, retention=timedelta(days=90), clock=has.clock)
        self.executions = ManageRuns(
            jobs, runs, find, pools=[POOL], clock=has.clock, executor=has.inline
        )
        self.request_runs = RequestRuns(
            jobs, runs, find, pools=[POOL], clock=has.clock, quotas=has.stack.quotas
        )
        self.skips = SkipNext(jobs, runs, clock=has.clock)
        self.sequences = RedriveSequence(
            jobs, runs, pools=[POOL], clock=has.clock, executor=has.inline
        )
        has.control.seed_cursors(1, floor_minute(has.clock.now()))


class Handler:
    """The API's process as the gateway calls it. It processes two jobs in one bulk call."""

    def __init__(self, has: Adapters) -> None:
        self._has = has

    def answer(
        self, method: str, path: str, body: object, key: str | None
    ) -> tuple[Answer, list[dict[str, Any]]]:
        """Answer a request. Returns the answer and its audit events."""
        text = None if body is None else json.dumps(body)
        event = http_event(method, path, text, authorizer=identity("acme"))
        if key is not None:
            event["headers"]["idempotency-key"] = key
        with self._new_process(), redirect_stdout(StringIO()) as output:
            raw = request_in_a_process(event)
        events = [json.loads(line) for line in output.getvalue().splitlines() if line[:1] == "{"]
        headers = raw["headers"]
        answer = Answer(
            raw["statusCode"], headers["Content-Type"], headers, json.loads(raw["body"])
        )
        return answer, [each for each in events if each.get("event") == "audit"]

    @contextmanager
    def _new_process(self) -> Iterator[None]:
        process, quotas = self._has.process, self._has.stack.quotas
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NEXTFIRE_QUOTAS", quotas.model_dump_json(by_alias=True))
            patch.setattr("nextfire.wiring.api.dynamodb", lambda: process.dynamodb)
            patch.setattr("nextfire.wiring.api.s3", lambda: process.s3)
            for executor in (
                "functions.api.services.RequestThreadPool",
                "nextfire.wiring.api.ThreadPoolExecutor",
            ):
                patch.setattr(executor, lambda _: self._has.inline)
            patch.setattr(many_jobs, "TOGETHER", 2)
            patch.setattr(many_jobs, "PAGES_AT_MOST", 1)
            api.own_services.cache_clear()
            try:
                yield
            finally:
                api.own_services.cache_clear()


class Watcher:
    """A watcher's process; on standby until it holds the lease."""

    def __init__(self, has: Adapters, pools: Collection[str]) -> None:
        self._clock = has.clock
        shares = Shares(backlogs={POOL: 100}, quotas=has.stack.quotas)
        config = WatcherConfig(
            0, has.stack.new_name("watcher"), [0], shares, pools=Pools(pools, grace=MINUTE)
        )
        self._notices = MemoryNotices()
        self._life = build_watcher(has.watcher(pools), config, self._notices)

    @property
    def holds(self) -> bool:
        return self._life.holds

    def step(self) -> datetime:
        """Do what is due now. Returns the time of the next step."""
        now = self._clock.now()
        for _ in range(STEPS):
            again_at = self._life.turn(now)
            if again_at > now:
                return again_at
        raise AssertionError(f"the watcher does not come to rest at {now}")

    def live(self, life: timedelta) -> None:
        """One invocation with the duration *life*."""
        self._life.live(life)

    def end(self) -> None:
        """End the invocation."""
        self._life.end()


class Worker:
    """A worker's process that is stopped as soon as no message is visible."""

    def __init__(self, has: Adapters) -> None:
        self._has = has
        self._executor = has.executor()
        self._config = ExecutorConfig(
            has.stack.new_name("worker"), has.stack.pool, LEASE, output_cap=1000
        )
        self.journal = WorkerJournal()
        self._pool: ServePool[SqsDelivery] | None = None

    def stop(self) -> None:
        """SIGTERM."""
        assert self._pool is not None
        self._pool.stop()

    def receive(self) -> None:
        """Receive one message without handling it."""
        self.journal.hold(self._has.inbox().receive(1, wait=timedelta(), hidden_for=LEASE))

    def work(self, *, most: int = STEPS) -> None:
        """Handle messages until none is visible, or *most* messages."""
        inbox = _FiniteInbox(self._has.inbox(), most, self.stop)
        notices = MemoryNotices()
        ports = WorkerPorts(
            executor=self._executor,
            inbox=inbox,
            journal=self.journal,
            service_clock=_RightClock(),
            protection=_NoTask(),
            deployment=_NoTask(),
            threads=Threads(
                slots=self._has.inline,
                size=1,
                background=self._has.inline,
                wait=lambda *_: None,
                monotonic=lambda: 0.0,
            ),
        )
        self._pool = build_worker(ports, self._config, notices)
        self._pool.serve()
        notices.assert_no_defect()
        assert inbox.left or most < STEPS, "the same messages are received again and again"


@dataclass
class _FiniteInbox:
    """Delivers messages one by one, at most *left*; then it stops its worker."""

    inbox: SqsInbox
    left: int
    stop: Callable[[], None]

    def receive(
        self,
        most: int,  # noqa: ARG002
        *,
        wait: timedelta,  # noqa: ARG002
        hidden_for: timedelta,
    ) -> list[SqsDelivery]:
        received: list[SqsDelivery] = []
        try:
            if self.left:
                received = self.inbox.receive(1, wait=timedelta(), hidden_for=hidden_for)
        finally:
            if not received:
                self.stop()
        self.left -= 1
        return received

    def acknowledge(self, deliveries: Sequence[SqsDelivery]) -> list[str]:
        return self.inbox.acknowledge(deliveries)


class _RightClock:
    def deviation(self) -> timedelta:
        return timedelta()


class _NoTask:
    def keep(self, *, working: bool) -> None:
        pass

    def is_replaced(self) -> bool:
        return False


class Invoked:
    """A Lambda executor's process, with the event source that receives and deletes its messages."""

    def __init__(self, has: Adapters, source: Adapters) -> None:
        config = ExecutorConfig(
            has.stack.new_name("worker"), has.stack.pool, LEASE, output_cap=1000
        )
        self._notices = MemoryNotices()
        self._batch = build_executor(has.executor(), config, self._notices)
        self._client = has.process.sqs
        self._inbox = source.inbox()

    def work(self) -> None:
        """Invoke it until no message is visible."""
        while received := self._inbox.receive(10, wait=timedelta(), hidden_for=2 * LEASE):
            deliveries = [replace(each, client=self._client) for each in received]
            stay = {
                each.message_id
                for each in self._batch.carry_out(deliveries, stopping=lambda: False)
            }
            self._notices.assert_no_defect()
            done = [each for each in received if each.message_id not in stay]
            if done:
                self._inbox.acknowledge(done)
