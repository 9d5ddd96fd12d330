"""The system on moto: processes that may die, simulated time, and the checks of records."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from io import StringIO
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest
from time_machine import Traveller

from functions.api import services as api
from nextfire.adapters.aws.event_bus import EventBridgeEventBus
from nextfire.adapters.aws.secrets import AwsSecrets
from nextfire.adapters.dynamodb.control_items import decode_lease
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.due_store import DynamoDbDueStore
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.items import Item
from nextfire.adapters.dynamodb.job_store import DynamoDbJobStore
from nextfire.adapters.dynamodb.join_store import DynamoDbJoinStore
from nextfire.adapters.dynamodb.run_reads import decode_all
from nextfire.adapters.dynamodb.run_store import DynamoDbRunStore
from nextfire.adapters.s3.run_files import S3RunFiles
from nextfire.adapters.s3.script_store import S3ScriptStore
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.sqs.run_queue import SqsDeadLetters, SqsDelivery, SqsInbox, SqsRunQueue
from nextfire.adapters.worker.journal import HeldMessage, WorkerJournal
from nextfire.domain.due import DueEntry, FireEntry, StoredEntry
from nextfire.domain.errors import (
    ConflictError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.ids import JobKey, RunKey, dedup_id
from nextfire.domain.instants import MINUTE, floor_minute, from_ms
from nextfire.domain.job import Job
from nextfire.domain.log import Stream
from nextfire.domain.message import decode_message
from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.control import Lease
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit, Supervisor
from nextfire.domain.quotas import NO_QUOTAS, TenantQuotas
from nextfire.domain.removed_pools import Pools
from nextfire.domain.run import Run, RunState
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.target import TargetKind
from nextfire.domain.zones import ZoneReading
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.http.authentication import Authentication
from nextfire.targets.http.messages import Request, Response
from nextfire.targets.http.runner import HttpTarget
from nextfire.targets.script.runner import ScriptTarget
from nextfire.usecases import many_jobs
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.endpoint_gate import EndpointGate
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_endpoints import ManageEndpoints
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.redrive_sequence import RedriveSequence
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.return_held import Returned, ReturnHeld
from nextfire.usecases.serve_pool import ServePool, Threads
from nextfire.usecases.skip_next import SkipNext
from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue, WakingJobs, WakingRuns
from nextfire.wiring.executor import ExecutorPorts, build_executor
from nextfire.wiring.watcher import WatcherConfig, WatcherPorts, build_watcher
from nextfire.wiring.worker import WorkerPorts, build_worker
from tests.accounting import assert_all_accounted_for, format_time
from tests.builders import LEASE, a_definition, at, job_key
from tests.callbacks import response
from tests.crashes.cloud import Cloud, Process
from tests.fakes import (
    Clock,
    InlineExecutor,
    Killed,
    MemoryNotices,
    MemoryScriptRunner,
    Script,
)
from tests.integration.deployment import (
    Answer,
    Deployment,
    http_event,
    identity,
    request_in_a_process,
)

if TYPE_CHECKING:
    from nextfire.targets.http.transport import Transport

T = TypeVar("T")

POOL, GONE = "default", "gone"
"""`GONE`: a pool that a flow's watcher may not know."""
LISTENER = "listener"
"""The queue that receives all events of the event bus."""
JOB_ROLE = "arn:aws:iam::123456789012:role/jobs"
_QUEUE, _DEAD_LETTERS = "default.fifo", "default-dead-letters.fifo"
_LIMIT = timedelta(minutes=10)
_MOMENT = timedelta(milliseconds=1)
_STEPS = 500
_COUNT = "#"
_LIVING = {JobState.ACTIVE.value, JobState.PAUSED.value}


class TravelClock(Clock):
    """A clock that also moves the machine's clock, and so moto's."""

    def __init__(self, traveller: Traveller, start: datetime) -> None:
        super().__init__(start)
        self._traveller = traveller

    def move_to(self, at: datetime) -> datetime:
        self._traveller.move_to(at)
        return super().move_to(at)


@dataclass(frozen=True)
class _Records:
    all: Mapping[RunKey, Run]


@dataclass(frozen=True)
class Snapshot:
    """All records; `SystemState`."""

    now: datetime
    jobs: Mapping[JobKey, Job]
    runs: _Records
    entries: Collection[DueEntry]

    def job(self, key: JobKey) -> Job:
        return self.jobs[key]


class _Runner:
    """`ScriptRunner` that plays the flow's script and reports each start to the stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        execution_id = call.environment["NEXTFIRE_EXECUTION_ID"]
        self._stack.started(execution_id, supervisor.checkpoint())
        script = self._stack.script(call)
        if self._stack.meanwhile is not None:
            script.meanwhile, self._stack.meanwhile = self._stack.meanwhile, None
        runner = MemoryScriptRunner(self._stack.clock, deque([script]))
        witness = _Witness(
            supervisor, lambda saved: self._stack.saved.update({execution_id: saved})
        )
        return runner.run(call, witness)


class _Transport:
    """The transport of callbacks: the flow's receiver, which reports each request to the stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def send(self, request: Request, **_: Any) -> Response:
        self._stack.started(request.headers["Nextfire-Execution-Id"], None)
        self._stack.sent.append(request.headers)
        return self._stack.respond(request, len(self._stack.sent))


class _Witness:
    """A `Supervisor` that reports each checkpoint whose save was acknowledged."""

    def __init__(self, supervisor: Supervisor, saved: Callable[[bytes], None]) -> None:
        self._supervisor = supervisor
        self._saved = saved

    def ask(self) -> Directive:
        return self._supervisor.ask()

    def output(self, stream: Stream, data: bytes) -> None:
        self._supervisor.output(stream, data)

    def checkpoint(self) -> bytes | None:
        return self._supervisor.checkpoint()

    def save(self, checkpoint: bytes) -> str | None:
        refused = self._supervisor.save(checkpoint)
        if refused is None:
            self._saved(checkpoint)
        return refused


@dataclass
class Stack:
    """One history of a system.

    `job_role`: the executors have a role for scripts; `pool`: the pool of the executors; `quotas`:
    the quotas of the tenants; `pools`: those that watchers know; `counted`: processes created from
    now on may die.

    `respond`: the response of the receiver of callbacks to a request and its number, from 1; raises
    CallFailedError if it sends none; `sent`: the headers of these requests.

    `answered`: the answer to the flow's caller, None before it; `answers`: the API handler's
    answers to the flow's requests; `audited`: its audit events for changes; `meanwhile`: called
    once while the next script runs; `starts`: starts of scripts by execution; `saved`: the
    checkpoints whose save was acknowledged.
    """

    system: Deployment
    cloud: Cloud
    clock: TravelClock
    script: Callable[[ScriptCall], Script]
    job_role: bool = False
    pool: str = POOL
    quotas: TenantQuotas = NO_QUOTAS
    pools: Collection[str] = (POOL, GONE)
    counted: bool = False
    answered: object = None
    answers: list[Answer] = field(default_factory=list)
    audited: list[dict[str, Any]] = field(default_factory=list)
    starts_at_answer: int = 0
    meanwhile: Callable[[], object] | None = None
    starts: Counter[str] = field(default_factory=Counter)
    saved: dict[str, bytes] = field(default_factory=dict)
    respond: Callable[[Request, int], Response] = lambda *_: response()
    sent: list[Mapping[str, str]] = field(default_factory=list)
    _ended: dict[RunKey, Run] = field(default_factory=dict)
    _read: tuple[list[Item], dict[RunKey, Run]] = field(default_factory=lambda: ([], {}))
    names: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self._adapters = Adapters(self, Process(self.cloud, "test", counted=False))
        self.jobs, self.runs = self._adapters.jobs, self._adapters.runs
        self.due, self.endpoints = self._adapters.due, self._adapters.endpoints

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def at(self, time: str) -> None:
        """Move the clock to *time*, as ``12:00:30``."""
        self.clock.move_to(at(time))

    # Processes

    def process(self, what: str, *, bystander: bool = False) -> Adapters:
        """Create a process. A *bystander* does not die."""
        counted = self.counted and not bystander
        return Adapters(self, Process(self.cloud, what, counted=counted))

    def api(self) -> Api:
        return Api(self.process("api"))

    def watcher(self) -> Watcher:
        return Watcher(self.process("watcher"), self.pools)

    def worker(self) -> Worker:
        return Worker(self.process("worker"))

    def supervisor(self, held: Sequence[HeldMessage]) -> Returned:
        """Let a supervisor hand back what its dead worker *held*."""
        return self.process("supervisor").give_back(held)

    def invoked(self) -> Invoked:
        return Invoked(self.process("worker"), self.process("source", bystander=True))

    def auditor(self) -> AuditReport:
        """Invoke the auditor."""
        total = AuditReport()
        for report in self.process("auditor").auditor().continue_audit(self.now + MINUTE):
            total += report
        return total

    def new_name(self, what: str) -> str:
        return f"{what}{next(self.names)}"

    # Requests

    def ask(self, do: Callable[[Api], object]) -> None:
        """Let a new API process *do* the request of the flow's caller. A 503 is not an answer."""
        try:
            self.answered = do(self.api())
        except (ConflictError, NotFoundError, QuotaUsedUpError) as error:
            self.answered = error
        except UnavailableError:
            return
        self.starts_at_answer = self.starts.total()

    def send(
        self, method: str, path: str, body: object = None, *, key: str | None = None
    ) -> Answer | None:
        """Send a request with the idempotency *key* to a new process of the API's handler. Returns
        None for a 503.
        """
        answer, events = Handler(self.process("api")).answer(method, path, body, key)
        assert answer.status != HTTPStatus.INTERNAL_SERVER_ERROR, answer.document
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return None
        self.audited += events
        return answer

    def register(self, job_id: str = "report", **fields: Any) -> Job:
        """Register a job, hourly by default. *fields* are fields of the definition."""
        api = self.api()
        uid = f"uid{job_id:0<6}"
        return api.jobs.register(job_key(job_id), a_definition(**fields), uid=uid, now=self.now)

    def replace_fire(self, time: str, *, reading: ZoneReading) -> None:
        """Replace the FIRE entry of `report` by one that is due at *time*."""
        [(slot, entry)] = [
            (stored.slot, stored.entry)
            for item in self._due_items()
            for stored in self.due.read(_minute(item["bucket"]), 0, before=None, consistent=True)
            if isinstance(stored, StoredEntry) and isinstance(stored.entry, FireEntry)
        ]
        self.due.delete([slot])
        self.due.put([replace(entry, at=at(time), reading=reading)], self.now)

    # Time

    def settle(self, until: str) -> None:
        """Let the system run, at least until *until*, until nothing is due, queued or running. A
        watcher or worker that dies is replaced.
        """
        watcher: Watcher | None = None
        worker: Worker | None = None
        for _ in range(_STEPS):
            again_at = self.now
            try:
                watcher = watcher or self.watcher()
                again_at = watcher.step()
            except Killed:
                watcher = None
            try:
                worker = worker or self.worker()
                worker.work()
            except Killed:
                worker = None
            self.observe()
            rests = watcher is not None and watcher.holds and not self._is_busy()
            if rests and self.now >= at(until):
                return
            waits = self._is_something_due() or self._is_something_visible()
            idle = watcher is None or not watcher.holds or waits
            instants = [*self._instants(), *([at(until)] if self.now < at(until) else [])]
            if idle or not instants:
                instants.append(max(again_at, self.now + _MOMENT))
            self.clock.move_to(min(instants))
        raise AssertionError(f"not at rest at {self.now}: {self.cloud.items('due')[:3]}")

    def _is_busy(self) -> bool:
        return (
            self._is_something_due()
            or any(item["kind"] == "RETRY" for item in self._due_items())
            or bool(self.cloud.messages(_QUEUE))
            or any(
                not RunState(item["state"]).ended
                for item in self.cloud.items("runs")
                if "state" in item  # others are items of joins
            )
        )

    def _is_something_due(self) -> bool:
        return any(_due_at(item) <= self.now for item in self._due_items())

    def _is_something_visible(self) -> bool:
        return any(from_ms(int(m.visible_at)) <= self.now for m in self.cloud.messages(_QUEUE))

    def _due_items(self) -> list[dict[str, Any]]:
        items = self.cloud.items(self.system.due_table)
        return [item for item in items if item["bucket"] != "quarantine"]

    def _instants(self) -> list[datetime]:
        """The times of the next events that need no request."""
        dues = [_due_at(item) for item in self._due_items()]
        visible = [from_ms(int(m.visible_at)) + _MOMENT for m in self.cloud.messages(_QUEUE)]
        return [each for each in (*dues, *visible) if each > self.now]

    # Records

    def memory(self) -> object:
        """What the checks remember: a death may leave it different although AWS is in the same
        state.
        """
        answered = self.answered is not None, len(self.answers), self.starts_at_answer
        return sorted(self.starts.items()), sorted(self.saved), answered

    def started(self, execution_id: str, checkpoint: bytes | None) -> None:
        """Check the start of a script: its run is RUNNING and had not ended, and it finds its
        checkpoint.
        """
        self.observe()
        saved = self.saved.get(execution_id, checkpoint)
        assert checkpoint == saved, f"{execution_id} does not find its checkpoint"
        self.starts[execution_id] += 1
        (run,) = [r for k, r in self._all_runs().items() if k.execution_id == execution_id]
        assert run.state is RunState.RUNNING, f"{execution_id} starts, but is {run.state}"
        assert run.key not in self._ended, f"{execution_id} starts again after its end"

    def redriven(self, key: RunKey) -> None:
        """A DEAD run, or one that was SKIPPED because of a parent, may start again."""
        self._ended.pop(key, None)

    def observe(self) -> None:
        """Remember the runs that ended, and check that they stay unchanged."""
        runs = self._all_runs()
        for key, was in [*self._ended.items()]:
            now = runs[key]
            if was.state is RunState.DEAD and now.attempt_base == was.attempt > was.attempt_base:
                self.redriven(key)
                continue
            if was.skipped_by_parents and now.dispatch > was.dispatch:
                self.redriven(key)  # reopened: a parent ended again
                continue
            same = (was.state, was.attempt) == (now.state, now.attempt)
            assert same, f"{key.execution_id} had ended {was.state}, but is {now.state}"
        self._ended.update({key: run for key, run in runs.items() if run.state.ended})

    def _all_runs(self) -> dict[RunKey, Run]:
        raw = [i for i in self.cloud.raw(self.system.runs_table) if "state" in i]  # not of joins
        if raw != self._read[0]:  # it is asked for often
            runs, unreadable = decode_all(raw, str)
            assert not unreadable
            self._read = raw, {run.key: run for run in runs}
        return self._read[1]

    def snapshot(self) -> Snapshot:
        items = self.cloud.items(self.system.jobs_table)
        keys = [JobKey(i["tenant"], i["job_id"]) for i in items if i["job_id"] != _COUNT]
        jobs = {key: self.jobs.get(key) for key in keys}
        buckets = {item["bucket"] for item in self._due_items()}
        stored = [
            entry
            for bucket in buckets
            for entry in self.due.read(_minute(bucket), 0, before=None, consistent=True)
        ]
        return Snapshot(
            self.now,
            {key: job for key, job in jobs.items() if job is not None},
            _Records(self._all_runs()),
            [each.entry for each in stored if isinstance(each, StoredEntry)],
        )

    def job(self, job_id: str = "report") -> Job:
        found = self.jobs.get(job_key(job_id))
        assert found is not None
        return found

    def run(self, time: str = "12:00", job_id: str = "report") -> Run:
        """The record of the run scheduled for *time*."""
        runs = [r for k, r in self._all_runs().items() if k.job.job_id == job_id]
        (run,) = [run for run in runs if run.key.scheduled_at == at(time)]
        return run

    def lease(self) -> Lease:
        """The lease of the watchers."""
        items = self.cloud.raw(self.system.control_table)
        (found,) = [item for item in items if item["id"]["S"] == "lease#0"]
        return decode_lease(found)

    def assert_attempts(self, run: Run, attempts: int) -> None:
        """Check that *run* had *attempts* attempts, and at most one more per killed worker."""
        most = attempts + self.cloud.died["worker"]
        assert attempts <= run.attempt <= most, f"{run.attempt} attempts, not {attempts} … {most}"

    @property
    def letters(self) -> list[str]:
        """The bodies in the dead-letter queue."""
        return [message.body for message in self.cloud.messages(_DEAD_LETTERS)]

    @property
    def published(self) -> str:
        """The events on the event bus, one per line."""
        return "\n".join(message.body for message in self.cloud.messages(LISTENER))

    def purge(self) -> None:
        """Purge the pool's queue, as an operator may do."""
        self.cloud.purge(_QUEUE)

    def assert_sound(
        self, *, allow_late_starts: bool = False, no_occurrences: Collection[str] = ()
    ) -> None:
        """Check what holds for every system at rest."""
        self.observe()
        books = self.snapshot()
        for job in books.jobs.values():
            if job.definition.type is ScheduleType.AFTER:
                continue  # it has no occurrences: its flow checks its runs
            assert_all_accounted_for(
                books,
                job,
                allow_late_starts=allow_late_starts,
                stray=lambda run: format_time(run.scheduled_at) in no_occurrences,
            )
        for key, run in books.runs.all.items():
            most = books.jobs[key.job].definition.retry_policy.max_attempts
            assert run.tries <= most, f"{key.execution_id} had {run.tries} attempts, limit {most}"
            assert self.starts[key.execution_id] <= run.fence
            if run.state is RunState.DEAD:
                self._assert_death_published(run)
        self._assert_counted()

    def _assert_counted(self) -> None:
        """A tenant's counter equals its number of live jobs if it has a quota of jobs."""
        counts: Counter[str] = Counter()
        living: Counter[str] = Counter()
        for item in self.cloud.items(self.system.jobs_table):
            if item["job_id"] == _COUNT:
                counts[item["tenant"].removeprefix(_COUNT)] = int(item["jobs"])
                continue
            lives = item["state"] in _LIVING
            limited = self.quotas.of(item["tenant"]).jobs is not None
            assert item.get("counted", False) == (lives and limited), item
            living[item["tenant"]] += lives and limited
        assert +counts == +living, f"{counts} counted, but {living} exist"
        assert min(counts.values(), default=0) >= 0

    @property
    def sent_per_minute(self) -> dict[datetime, int]:
        """Number of runs that arrived in the queue per minute of the clock."""
        return Counter(floor_minute(sent) for sent in self.cloud.sent(_QUEUE))

    def _assert_death_published(self, run: Run) -> None:
        mine = []
        for body in self.letters:
            try:
                message = decode_message(body)
            except UndecodableError:
                continue
            mine += [message] if message.key == run.key else []
        assert run.dispatch in {m.dispatch for m in mine}, f"no dead letter of {run.key}"
        assert dedup_id(run.key, run.dispatch) in self.published, f"no event of {run.key}"
        assert run.buried == run.dispatch


def _due_at(item: Mapping[str, Any]) -> datetime:
    stamp = str(item["entry"])[:13]
    return from_ms(int(stamp)) if stamp.isdigit() else from_ms(0)


def _minute(bucket: str) -> datetime:
    return datetime.fromisoformat(bucket.partition("#")[0])


class _Asleep:
    """A `Waker` whose events are all lost, and the notices about that."""

    def wake(self, group: int) -> None: ...

    def wake_up_lost(self, why: Exception) -> None: ...


class Adapters:
    """The adapters of a process."""

    def __init__(self, stack: Stack, process: Process) -> None:
        self.stack = stack
        self.process = process
        self.inline = InlineExecutor()
        self.clock = stack.clock
        system, database = stack.system, process.dynamodb
        due_table = system.due_table
        self.jobs = DynamoDbJobStore(database, table=system.jobs_table, due_table=due_table)
        self.due = DynamoDbDueStore(database, table=due_table, shards=1, executor=self.inline)
        self.runs = DynamoDbRunStore(
            database,
            table=system.runs_table,
            due_table=due_table,
            jobs_table=system.jobs_table,
        )
        self.control = DynamoDbControlStore(database, table=system.control_table)
        self.endpoints = DynamoDbEndpointStore(database, table=system.endpoints_table)
        self.joins = DynamoDbJoinStore(database, table=system.runs_table)

    def queue(self, pools: Collection[str] = (POOL,)) -> SqsRunQueue:
        queues = dict.fromkeys(pools, self.stack.system.queue_url)
        return SqsRunQueue(self.process.sqs, queues=queues, executor=self.inline)

    def auditor(self) -> AuditJobs:
        return AuditJobs(
            jobs=self.jobs,
            due=self.due,
            runs=self.runs,
            queue=self.queue(),
            control=self.control,
            joins=self.joins,
            clock=self.clock,
            executor=self.inline,
            pools=[POOL],
            write_shards=1,
            read_shards=1,
            every=timedelta(days=1),
        )

    @property
    def wake(self) -> WakeWatchers:
        """Reads the lease after each entry that is due soon. Flows start their watchers anyway."""
        return WakeWatchers(self.control, _Asleep(), self.clock, _Asleep(), shards=1, groups=1)

    def executor(self) -> ExecutorPorts:
        stack, system = self.stack, self.stack.system
        secrets = AwsSecrets(self.process.secrets, self.process.parameters, pool=POOL)
        scripts = ScriptTarget(
            scripts=S3ScriptStore(self.process.s3),
            bucket=system.bucket,
            runner=_Runner(stack),
            secrets=secrets,
            job_role=self._job_role() if stack.job_role else None,
            clock=self.clock,
        )
        callbacks = HttpTarget(
            transport=cast("Transport", _Transport(stack)),
            secrets=secrets,
            authentication=Authentication(secrets, None, None),
            clock=self.clock,
            gate=EndpointGate(self.endpoints, POOL, self.clock),
        )
        return ExecutorPorts(
            jobs=self.jobs,
            runs=cast("RunStore", WakingRuns(self.runs, self.wake)),
            due=cast("DueStore", WakingDue(self.due, self.wake)),
            files=S3RunFiles(self.process.s3, bucket=system.outputs_bucket),
            target=TargetsByKind({TargetKind.SCRIPT: scripts, TargetKind.HTTP: callbacks}),
            dead_letters=SqsDeadLetters(self.process.sqs, queue_url=system.dlq_url),
            events=EventBridgeEventBus(self.process.events, bus=system.event_bus),
            clock=self.clock,
            background=self.inline,
            joins=self.joins,
            queue=self.queue(),
            children=self.inline,
            quotas=NO_QUOTAS,
        )

    def watcher(self, pools: Collection[str]) -> WatcherPorts:
        return WatcherPorts(
            jobs=self.jobs,
            due=self.due,
            runs=self.runs,
            queue=self.queue(pools),
            control=self.control,
            clock=self.clock,
            executor=self.inline,
            lanes=self.inline,
        )

    def give_back(self, held: Sequence[HeldMessage]) -> Returned:
        notices, inbox, now = MemoryNotices(), self.inbox(), self.clock.now()
        url = self.stack.system.queue_url
        deliveries = [
            SqsDelivery(
                self.process.sqs,
                url,
                each.body,
                each.receipt_handle,
                each.message_id,
                each.group,
                each.token,
            )
            for each in held
        ]
        use_case = ReturnHeld(self.runs, inbox.show, self.clock, notices)
        polls_until = now + timedelta(seconds=2)
        returned = use_case.give_back(deliveries, polls_until=polls_until, until=now + LEASE)
        notices.assert_no_defect()
        return returned

    def inbox(self) -> SqsInbox:
        return SqsInbox(self.process.sqs, queue_url=self.stack.system.queue_url)

    def _job_role(self) -> StsJobRole:
        return _JobRole(
            self.process.sts, role_arn=JOB_ROLE, pool=POOL, environment={}, clock=self.clock
        )


class _JobRole(StsJobRole):
    """Without the server that provides credentials: no script here requests them."""

    def _address(self) -> str:
        return "http://127.0.0.1"


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
        self.backfills = ManageBackfills(jobs, unsent)
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
        for _ in range(_STEPS):
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
        self._terms = ExecutorConfig(
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

    def work(self, *, most: int = _STEPS) -> None:
        """Handle messages until none is visible, or *most* messages."""
        inbox = _FiniteInbox(self._has.inbox(), most, self.stop)
        notices = MemoryNotices()
        ports = WorkerPorts(
            executor=self._executor,
            inbox=inbox,
            journal=self.journal,
            service_clock=_RightClock(),
            protection=_NoProtection(),
            threads=Threads(
                slots=self._has.inline,
                size=1,
                background=self._has.inline,
                wait=lambda *_: None,
                monotonic=lambda: 0.0,
            ),
        )
        self._pool = build_worker(ports, self._terms, notices)
        self._pool.serve()
        notices.assert_no_defect()
        assert inbox.left or most < _STEPS, "the same messages are received again and again"


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


class _NoProtection:
    def keep(self, *, working: bool) -> None:
        pass


class Invoked:
    """A Lambda executor's process, with the event source that receives and deletes its messages."""

    def __init__(self, has: Adapters, source: Adapters) -> None:
        terms = ExecutorConfig(has.stack.new_name("worker"), has.stack.pool, LEASE, output_cap=1000)
        self._notices = MemoryNotices()
        self._batch = build_executor(has.executor(), terms, self._notices)
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
