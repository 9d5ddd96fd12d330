"""The processes of the system, as AWS and their supervisors start, stop and lose them.

Use cases and loops are the real ones, built by the same functions as in `functions/`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

from nextfire.domain.ports.control import ControlStore
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.removed_pools import Pools
from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.script.runner import ScriptTarget
from nextfire.testing.kernel import SECOND, Actor, Kernel, current
from nextfire.testing.memory.executors import InlineExecutor
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.return_held import Returned, ReturnHeld
from nextfire.usecases.serve_pool import BUSY_POLL, StopWaiting, Threads
from nextfire.usecases.wake_watchers import WakeWatchers, WakingDue, WakingRuns
from nextfire.wiring.executor import build_executor
from nextfire.wiring.watcher import WatcherConfig, build_watcher
from nextfire.wiring.worker import WorkerPorts, build_worker
from tests.fakes import MemoryJournal, Stores
from tests.simulation.callbacks import CallTarget, Endpoints, Receiver
from tests.simulation.client import Client
from tests.simulation.effects import Effects
from tests.simulation.hosts import (
    DelayedClock,
    Lanes,
    NoTask,
    RecordedNotices,
    ServiceClock,
    SimulatedDelivery,
    SimulatedInbox,
    SimulatedWaker,
    Slots,
    WatchedControl,
    Watching,
)
from tests.simulation.monitor import Monitor
from tests.simulation.processes import Processes, Setting
from tests.simulation.random_scripts import RandomScripts
from tests.simulation.wire import Wire
from tests.world import BUCKET, POOLS

LEASE = timedelta(seconds=12)
POOL_GRACE = timedelta(seconds=45)
"""How long a dispatch waits for a pool that was removed."""
LIFE = timedelta(seconds=125)
"""Duration of a watcher's invocation."""
_MACHINE_LOST = 0.4
"""Probability that a supervisor dies with its worker."""
_LAMBDA_BATCH = 3
_LAMBDA_TIME = timedelta(minutes=15)
_HAND_BACK_BEFORE = timedelta(seconds=15)


class System(Processes):
    """Starts the processes of the system, as AWS and their supervisors do."""

    def __init__(
        self,
        kernel: Kernel,
        wire: Wire,
        stores: Stores,
        setting: Setting,
        monitor: Monitor,
        effects: Effects,
    ) -> None:
        super().__init__(kernel, wire, setting)
        self.stores = stores
        self.aws = Actor(kernel, "aws")
        """Timers and event sources, which never fail."""
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
        self.exits = [0, 0, 0, 1, 1]
        """The exit codes of scripts, by their frequency."""
        self.audits: list[AuditReport] = []
        self.job_retention: timedelta | None = None
        self.pools = Pools(frozenset(POOLS), grace=POOL_GRACE)
        """The pools in the settings that new processes read."""
        self.audit_segments = 1
        self._warm: list[Watching] = []
        self._uids = count(1)

    # Processes

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
        limits = setting.shares, setting.memory, self.pools
        config = WatcherConfig(group, actor.name, shards, *limits, groups=setting.groups)
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
            protection=NoTask(),
            deployment=NoTask(),
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

    def _executor_ports(self, actor: Actor, pool: str) -> ExecutorPorts:
        port, wake = self.wire.port, self.waking(actor)
        scripts = ScriptTarget(
            scripts=port(actor, "scripts"),
            bucket=BUCKET,
            runner=RandomScripts(self, actor),
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


def _executor_config(actor: Actor, pool: str) -> ExecutorConfig:
    return ExecutorConfig(actor.name, pool, LEASE, output_cap=1_000)
