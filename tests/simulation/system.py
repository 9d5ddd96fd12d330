"""The processes of the system, as AWS and their supervisors start, stop and lose them.

Use cases and loops are the real ones, built by the same functions as in `functions/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
)
from nextfire.domain.ids import parse_execution_id
from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.requests import RequestStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit, Supervisor
from nextfire.domain.removed_pools import Pools
from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.script.runner import ScriptTarget
from nextfire.testing.kernel import SECOND, Actor, Kernel, current
from nextfire.testing.memory.executors import InlineExecutor
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.find_run import FindRun
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.idempotent_requests import IdempotentRequest, IdempotentRequests
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_endpoints import ManageEndpoints
from nextfire.usecases.manage_jobs import ManageJobs
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.request_runs import RequestRuns
from nextfire.usecases.return_held import Returned, ReturnHeld
from nextfire.usecases.serve_pool import BUSY_POLL, StopWaiting, Threads
from nextfire.usecases.skip_next import SkipNext
from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue, WakingJobs, WakingRuns
from nextfire.usecases.watcher_life import WatcherLife
from nextfire.wiring.executor import ExecutorPorts, build_executor
from nextfire.wiring.watcher import WatcherConfig, WatcherPorts, build_watcher
from nextfire.wiring.worker import WorkerPorts, build_worker
from tests.fakes import Killed, MemoryJournal, MemoryScriptRunner, Script, Stores
from tests.simulation.callbacks import CallTarget, Endpoints, Receiver
from tests.simulation.effects import Effects
from tests.simulation.hosts import (
    DelayedClock,
    Lanes,
    NoProtection,
    RecordedNotices,
    ServiceClock,
    SimulatedDelivery,
    SimulatedInbox,
    SimulatedWaker,
    Slots,
    WatchedControl,
)
from tests.simulation.monitor import Monitor
from tests.simulation.wire import Wire
from tests.world import BUCKET, POOLS

LEASE = timedelta(seconds=12)
POOL_GRACE = timedelta(seconds=45)
"""How long a dispatch waits for a pool that was removed."""
LIFE = timedelta(seconds=125)
"""Duration of a watcher's invocation."""
_REQUEST = 16
"""Number of half steps within which a request dies, if it does: about as many as most requests
have.
"""
_MACHINE_LOST = 0.4
"""Probability that a supervisor dies with its worker."""
_LAMBDA_BATCH = 3
_LAMBDA_TIME = timedelta(minutes=15)
_HAND_BACK_BEFORE = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Setting:
    """The configuration of a history's stack. `drag`: the longest delay of a watcher's loop, in µs;
    `doomed`: the probability that a process dies by itself, within `dies_within` half steps.
    """

    shards: int
    groups: int
    workers: int
    slots: int
    on_lambda: bool
    drag: int
    doomed: float
    dies_within: int
    shares: Shares


@dataclass(slots=True)
class Started:
    """A script that ran, or a request that was sent."""

    execution_id: str
    attempt: int
    worker: str
    payload: str
    at: datetime
    upstream: str | None = None


@dataclass(frozen=True, slots=True)
class Watching:
    """A watcher's process."""

    group: int
    actor: Actor
    life: WatcherLife
    control: WatchedControl


class System:
    """Starts processes. `escaped`: errors that escaped from a process, and duties that its loop
    missed.
    """

    def __init__(
        self,
        kernel: Kernel,
        wire: Wire,
        stores: Stores,
        setting: Setting,
        monitor: Monitor,
        effects: Effects,
    ) -> None:
        self.kernel = kernel
        self.wire = wire
        self.stores = stores
        self.setting = setting
        self.aws = Actor(kernel, "aws")
        """Timers and event sources, which never fail."""
        self.escaped: list[str] = []
        self.workers: list[Actor] = []
        self.watchers: list[Actor] = []
        self.requests: list[Actor] = []
        self.timers = True
        """Whether EventBridge and the event sources are running."""
        self.works = True
        """Whether workers are restarted."""
        self.monitor = monitor
        self.effects = effects
        self.receiver = Receiver(self)
        self.endpoints = Endpoints(monitor, stores.endpoints)
        self.returned: list[Returned] = []
        """What supervisors handed back for dead workers."""
        self.started: list[Started] = []
        self.exits = [0, 0, 0, 1, 1]
        """The exit codes of scripts, by their frequency."""
        self.audits: list[AuditReport] = []
        self.job_retention: timedelta | None = None
        self.pools = Pools(frozenset(POOLS), grace=POOL_GRACE)
        """The pools in the settings that new processes read."""
        self.audit_segments = 1
        self._warm: list[Watching] = []
        self._names = count(1)
        self._uids = count(1)

    # Processes

    def process(self, kind: str) -> Actor:
        """A new process with its own clock; it may be doomed to die by itself."""
        dice = self.kernel.dice
        actor = Actor(
            self.kernel, f"{kind}-{next(self._names)}", skew=dice.randint(-SECOND, SECOND)
        )
        if dice.random() < self.setting.doomed:
            within = _REQUEST if kind == "api" else self.setting.dies_within
            actor.dies_in = dice.randrange(within)
        return actor

    def start(
        self, actor: Actor, do: Callable[[], Any], *, survives_outages: bool = False
    ) -> Future[Any]:
        """Run *do* in *actor*. Unhandled errors are recorded in `escaped`."""

        def guarded() -> Any:
            try:
                return do()
            except Killed:
                raise
            except Exception as error:
                if isinstance(error, UnavailableError) and not survives_outages:
                    raise
                self.escaped.append(f"{actor.name}: {type(error).__name__}: {error}")
                self.kernel.log(actor.name, f"ESCAPED {error!r}")
                raise

        return actor.submit(guarded)

    @property
    def processes(self) -> list[Actor]:
        """The live processes that may be killed."""
        self.workers = [each for each in self.workers if each.alive and each.tasks]
        self.watchers = [each for each in self.watchers if each.alive]
        self.requests = [each for each in self.requests if each.alive and each.tasks]
        return [*self.workers, *self.watchers, *self.requests]

    def drag(self) -> timedelta:
        most = self.setting.drag
        return timedelta(microseconds=self.kernel.dice.randrange(most)) if most else timedelta()

    # The watcher

    def invoke_watcher(self, group: int, *, woken: bool = False) -> None:
        """Invoke a watcher like EventBridge: in an idle process, if there is one."""
        for index, each in enumerate(self._warm):
            if each.group == group and each.actor.alive and self.kernel.dice.random() < 0.7:
                watching = self._warm.pop(index)
                break
        else:
            watching = self._new_watcher(self.process("watcher"), group)
            self.watchers.append(watching.actor)
        self.start(
            watching.actor, lambda: self._watch(watching, woken=woken), survives_outages=True
        )

    def _new_watcher(self, actor: Actor, group: int) -> Watching:
        port, setting = self.wire.port, self.setting
        control = WatchedControl(port(actor, "control"))
        ports = WatcherPorts(
            jobs=port(actor, "jobs"),
            due=port(actor, "due"),
            runs=port(actor, "runs"),
            queue=port(actor, "queue", self.stores.queue.of(*self.pools.names)),
            control=cast("ControlStore", control),
            clock=DelayedClock(actor, self.drag),
            executor=actor,
            lanes=Lanes(actor),
        )
        shards = range(group, setting.shards, setting.groups)
        config = WatcherConfig(group, actor.name, shards, setting.shares, pools=self.pools)
        life = build_watcher(ports, config, RecordedNotices(self, actor))
        turn = life.turn

        def noted(now: datetime) -> datetime:
            again_at = turn(now)
            control.held = life.holds
            return again_at

        life.turn = noted  # type: ignore[method-assign]
        return Watching(group, actor, life, control)

    def _watch(self, watching: Watching, *, woken: bool) -> None:
        control = watching.control
        control.held = control.asked_to_release = False
        watching.life.live(LIFE, sleeps=True, woken=woken)
        if control.held and not control.asked_to_release:
            self.escaped.append(f"{watching.actor.name}: its life ended, but it keeps its lease")
        self._warm.append(watching)

    def waking(self, actor: Actor) -> WakeWatchers:
        """The part of *actor* that wakes watchers."""
        return WakeWatchers(
            self.wire.port(actor, "control"),
            self.wire.port(actor, "waker", SimulatedWaker(self)),
            actor,
            RecordedNotices(self, actor),
            shards=self.setting.shards,
            groups=self.setting.groups,
        )

    # The executors

    def start_worker(self, pool: str) -> Actor:
        """Start a worker process, restarted after its death as long as `works`."""
        actor, journal = self.process("worker"), MemoryJournal()
        actor.on_kill = lambda: self._lose_worker(actor, pool, journal)
        self.workers.append(actor)
        ports = WorkerPorts(
            executor=self._executor_ports(actor, pool),
            inbox=SimulatedInbox(self, actor, pool),
            journal=journal,
            service_clock=ServiceClock(actor),
            protection=NoProtection(),
            threads=Threads(
                slots=Slots(self, actor),
                size=self.setting.slots,
                background=actor,
                wait=self.kernel.wait,
                monotonic=lambda: self.kernel.at / SECOND,
            ),
        )
        worker = build_worker(ports, _executor_config(actor, pool), RecordedNotices(self, actor))

        def serve() -> None:
            task = current()

            def stop() -> None:
                if worker.stop():
                    self.kernel.interrupt(task, StopWaiting())

            actor.on_stop = stop
            worker.serve()

        self.start(actor, serve, survives_outages=True)
        return actor

    def _lose_worker(self, worker: Actor, pool: str, journal: MemoryJournal) -> None:
        """Its supervisor hands back what it held, unless the machine is lost."""
        if not self.works or self.kernel.dice.random() < _MACHINE_LOST:
            return
        actor = self.process("supervisor")
        self.requests.append(actor)
        actor.acts_for = worker
        held = [*journal.held]
        polls_until = self.kernel.clock.now() + BUSY_POLL

        def give_back() -> None:
            actor.sleep(timedelta(seconds=self.kernel.dice.choice([0.1, 1, 5])))
            use_case = ReturnHeld(
                self.wire.port(actor, "runs"),
                SimulatedInbox(self, actor, pool).show,
                actor,
                RecordedNotices(self, actor),
            )
            returned = use_case.give_back(
                held, polls_until=polls_until + actor.skew, until=actor.now() + LEASE
            )
            self.returned.append(returned)
            self.kernel.log(actor.name, f"what {worker.name} held: {returned}")

        self.start(actor, give_back)

    def invoke_executor(self, pool: str) -> None:
        """Start a process with a batch, like the event source mapping. The messages are hidden for
        the maximum duration; messages that the answer does not name are deleted.
        """
        queue = self.stores.queue.queues[pool]
        received = queue.receive(_LAMBDA_BATCH, hidden_for=_LAMBDA_TIME)
        if not received:
            return
        actor = self.process("lambda")
        self.workers.append(actor)
        batch = build_executor(
            self._executor_ports(actor, pool),
            _executor_config(actor, pool),
            RecordedNotices(self, actor),
        )
        end_at = actor.now() + _LAMBDA_TIME

        def invoke() -> None:
            deliveries = [SimulatedDelivery(self, actor, each) for each in received]
            stay = batch.carry_out(
                deliveries,
                stopping=lambda: actor.stopping or end_at - actor.now() < _HAND_BACK_BEFORE,
                longest=max(end_at - actor.now() - _HAND_BACK_BEFORE, timedelta(seconds=1)),
            )
            self.check_handed_back(actor, stay)
            names = {each.message_id for each in stay}
            for delivery in received:
                if delivery.message_id not in names:
                    delivery.acknowledge()

        self.start(actor, invoke, survives_outages=True)

    def check_handed_back(self, actor: Actor, stay: Sequence[SimulatedDelivery]) -> None:
        """Check that of the messages of a group that stay, all but the first were made visible."""
        groups = set()
        for delivery in stay:
            if delivery.group in groups and not delivery.handed_back:
                self.escaped.append(f"{actor.name}: {delivery.message_id} was not handed back")
            groups.add(delivery.group)

    def _executor_ports(self, actor: Actor, pool: str) -> ExecutorPorts:
        port, wake = self.wire.port, self.waking(actor)
        scripts = ScriptTarget(
            scripts=port(actor, "scripts"),
            bucket=BUCKET,
            runner=_Runner(self, actor),
            secrets=port(actor, "secrets"),
            job_role=None,
            clock=actor,
        )
        return ExecutorPorts(
            jobs=port(actor, "jobs"),
            runs=cast("RunStore", WakingRuns(port(actor, "runs"), wake)),
            due=cast("DueStore", WakingDue(port(actor, "due"), wake)),
            files=port(actor, "files"),
            target=TargetsByKind(
                {TargetKind.SCRIPT: scripts, TargetKind.HTTP: CallTarget(self, actor, pool)}
            ),
            dead_letters=port(actor, "dead_letters"),
            events=port(actor, "events"),
            clock=actor,
            background=actor,
            joins=port(actor, "joins"),
            queue=port(actor, "queue", self.stores.queue.of(pool)),
            children=InlineExecutor(),
            quotas=self.setting.shares.quotas,
        )

    def began(
        self,
        actor: Actor,
        execution_id: str,
        attempt: int,
        payload: str,
        upstream: str | None = None,
    ) -> None:
        """Note that *actor* began a script or a call."""
        now = self.kernel.clock.now()
        self.started.append(Started(execution_id, attempt, actor.name, payload, now, upstream))

    # The auditor

    def invoke_auditor(self, *, restart: bool = False) -> None:
        actor = self.process("auditor")
        self.requests.append(actor)
        port, setting = self.wire.port, self.setting
        audit = AuditJobs(
            jobs=port(actor, "jobs"),
            due=port(actor, "due"),
            runs=port(actor, "runs"),
            queue=port(actor, "queue"),
            control=port(actor, "control"),
            joins=port(actor, "joins"),
            clock=actor,
            executor=actor,
            pools=POOLS,
            write_shards=setting.shards,
            read_shards=setting.shards,
            every=timedelta(days=1),
            job_retention=self.job_retention,
        )

        segments, number = self.audit_segments, len(self.audits)
        parts = audit.in_segments(segments, part=3) if segments > 1 else None

        def continue_audit() -> None:
            until = actor.now() + timedelta(minutes=14)
            for report in (
                audit.continue_audit(until, restart=restart)
                if parts is None
                else parts.continue_audit(until, segment=number % segments, restart=restart)
            ):
                self.audits.append(report)
                self.kernel.log(actor.name, f"{report}")

        self.start(actor, continue_audit)

    # The API

    def request(self, tenant: str, do: Callable[[Client], None]) -> Future[Any]:
        """Start an API request of *tenant* in its own process."""
        actor = self.process("api")
        self.requests.append(actor)
        client = Client(self, actor, tenant)
        return self.start(actor, lambda: do(client))

    def new_uid(self) -> str:
        return f"uid{next(self._uids):05d}"


class Client:
    """The use cases of an API request."""

    def __init__(self, system: System, actor: Actor, tenant: str) -> None:
        self.system = system
        self.tenant = actor.tenant = tenant
        self.actor = actor
        port, wake = system.wire.port, system.waking(actor)
        jobs = cast("JobStore", WakingJobs(port(actor, "jobs"), wake))
        runs = cast("RunStore", WakingRuns(port(actor, "runs"), wake))
        self.jobs = ManageJobs(
            jobs,
            Limits(POOLS, BUCKET, system.setting.shares.quotas),
            FindUnsent(
                port(actor, "due"), port(actor, "control"), read_shards=system.setting.shards
            ),
        )
        self.backfills = ManageBackfills(
            jobs,
            FindUnsent(
                port(actor, "due"), port(actor, "control"), read_shards=system.setting.shards
            ),
        )
        self.endpoints = ManageEndpoints(port(actor, "endpoints"), [*POOLS])
        self.requests: RequestStore = port(actor, "requests")
        self.runs_port: RunStore = runs
        self.find_run = FindRun(jobs, runs, retention=timedelta(days=90), clock=actor)
        self.runs = ManageRuns(jobs, runs, self.find_run, pools=POOLS, clock=actor, executor=actor)
        self.request_runs = RequestRuns(jobs, runs, self.find_run, pools=POOLS, clock=actor)
        self.skips = SkipNext(jobs, runs, clock=actor)

    def once(self, key: str, body: str, do: Callable[[IdempotentRequest], str]) -> str:
        """Answer a request with the idempotency key *key*, like `functions/api/idempotency.py`."""
        answers = IdempotentRequests(self.requests, self.tenant, key)
        asked = answers.begin(body, self.actor.now())
        if asked.answer is not None:
            return asked.answer
        try:
            answer = do(asked)
        except (ConflictError, InvalidInputError, NotFoundError, QuotaUsedUpError):
            answers.refuse(asked)
            raise
        return answers.finish(asked, answer)


def _executor_config(actor: Actor, pool: str) -> ExecutorConfig:
    return ExecutorConfig(actor.name, pool, LEASE, output_cap=1_000)


@dataclass(frozen=True, slots=True)
class _Runner:
    """`ScriptRunner` that plays random scripts."""

    system: System
    actor: Actor
    kinds: list[dict[str, Any]] = field(default_factory=list)

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        dice = self.system.kernel.dice
        script = Script(
            exit_code=dice.choice(self.system.exits),
            lasts=timedelta(seconds=dice.choice([0, 0, 0, 1, 3, 25, 90])),
            frozen=dice.random() < 0.06,
            saves=dice.choice([None, None, b"1"]),
            stdout=dice.choice(["", "", "line\n" * 400]),
        )
        environment = call.environment
        execution_id = environment["NEXTFIRE_EXECUTION_ID"]
        attempt = int(environment["NEXTFIRE_ATTEMPT"])
        script.result = json.dumps({"of": execution_id, "attempt": attempt}).encode()
        self.system.began(self.actor, execution_id, attempt, call.payload, call.upstream)
        self.system.kernel.log(
            self.actor.name,
            f"SCRIPT {execution_id} attempt {attempt}: {script.lasts.total_seconds():.0f} s, "
            f"exit {script.exit_code}{', frozen' if script.frozen else ''}",
        )
        runner = MemoryScriptRunner(self.actor)
        runner.scripts.append(script)
        key = parse_execution_id(environment["NEXTFIRE_TENANT"], execution_id)
        with self.system.effects.of(self.actor, key, attempt, frozen=script.frozen):
            return runner.run(call, supervisor)
