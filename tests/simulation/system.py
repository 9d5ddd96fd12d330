"""The processes of the system, as AWS and their supervisors start, stop and lose them.

The use cases are the real ones; the loops around them are those of `functions/`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
)
from nextfire.domain.ids import parse_execution_id
from nextfire.domain.ports import (
    Lease,
    RequestStore,
    RunStore,
    ScriptCall,
    ScriptExit,
    Supervisor,
)
from nextfire.usecases.answer_once import AnswerOnce, Once
from nextfire.usecases.audit import AuditJobs
from nextfire.usecases.dispatch_due import DispatchDue, Shares
from nextfire.usecases.execute_run import Disposition, ExecuteRun, Terms
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.hold_lease import HoldLease
from nextfire.usecases.manage_backfills import ManageBackfills
from nextfire.usecases.manage_jobs import Limits, ManageJobs
from nextfire.usecases.manage_runs import ManageRuns
from nextfire.usecases.run_script import RunScript
from nextfire.usecases.watch import Watch
from tests.fakes import Killed, MemoryDelivery, MemoryScriptRunner, Script, Stores
from tests.simulation.effects import Effects
from tests.simulation.kernel import SECOND, Actor, Kernel
from tests.simulation.wire import Wire
from tests.world import BUCKET, POOLS

LEASE = timedelta(seconds=12)
LIFE = timedelta(seconds=125)
"""Of a watcher's invocation."""
_REQUEST = 16
"""Half steps that most requests have: one that is to die later does not."""
_AFTER_TROUBLE = timedelta(milliseconds=250)
_LAMBDA_BATCH = 3
_LAMBDA_TIME = timedelta(minutes=15)
_HAND_BACK_BEFORE = timedelta(seconds=15)
_IDLE = [SECOND // 5, SECOND, 2 * SECOND, 4 * SECOND]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a history's stack is like. `drag`: the longest that a watcher is held up in its loop, in
    µs; `doomed`: the odds that a process dies by itself, within `dies_within` half steps.
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
    """A script that ran: of which attempt, on which worker, on what."""

    execution_id: str
    attempt: int
    worker: str
    payload: str
    at: datetime


class System:
    """Starts processes. `escaped`: what got out of one that should have been handled in it."""

    def __init__(
        self, kernel: Kernel, wire: Wire, stores: Stores, setting: Setting, effects: Effects
    ) -> None:
        self.kernel = kernel
        self.wire = wire
        self.stores = stores
        self.setting = setting
        self.aws = Actor(kernel, "aws")
        """What never fails: timers and event sources."""
        self.escaped: list[str] = []
        self.workers: list[Actor] = []
        self.watchers: list[Actor] = []
        self.requests: list[Actor] = []
        self.timers = True
        """Whether EventBridge and the event sources are at work."""
        self.works = True
        """Whether workers are restarted."""
        self.effects = effects
        self.scripts_started: list[Started] = []
        self.steps_at: dict[str, datetime] = {}
        """By watcher what its clock said at its last step: what it decides in that, it decides by
        this, however long the sending takes.
        """
        self._warm: list[tuple[int, Actor, Watch]] = []
        self._names = count(1)
        self._uids = count(1)

    # Processes

    def process(self, kind: str) -> Actor:
        """A new process with a clock of its own, which may be doomed."""
        dice = self.kernel.dice
        actor = Actor(
            self.kernel, f"{kind}-{next(self._names)}", skew=dice.randint(-SECOND, SECOND)
        )
        if dice.random() < self.setting.doomed:
            within = _REQUEST if kind == "api" else self.setting.dies_within
            actor.dies_in = dice.randrange(within)
        return actor

    def start(self, actor: Actor, do: Callable[[], Any]) -> Future[Any]:
        """Run *do* in *actor*. What it does not handle is put on record."""

        def guarded() -> Any:
            try:
                return do()
            except (Killed, UnavailableError):
                raise
            except Exception as error:
                self.escaped.append(f"{actor.name}: {type(error).__name__}: {error}")
                self.kernel.tell(actor.name, f"ESCAPED {error!r}")
                raise

        return actor.submit(guarded)

    @property
    def processes(self) -> list[Actor]:
        """Those that live and may be killed."""
        self.workers = [each for each in self.workers if each.alive and each.tasks]
        self.watchers = [each for each in self.watchers if each.alive]
        self.requests = [each for each in self.requests if each.alive and each.tasks]
        return [*self.workers, *self.watchers, *self.requests]

    def drag(self) -> timedelta:
        most = self.setting.drag
        return timedelta(microseconds=self.kernel.dice.randrange(most)) if most else timedelta()

    # The watcher

    def invoke_watcher(self, group: int) -> None:
        """As EventBridge does: in a process that is idle, if there is one."""
        for index, (warm_group, warm, _) in enumerate(self._warm):
            if warm_group == group and warm.alive and self.kernel.dice.random() < 0.7:
                _, actor, watch = self._warm.pop(index)
                break
        else:
            actor = self.process("watcher")
            watch = self._new_watch(actor, group)
            self.watchers.append(actor)
        self.start(actor, lambda: self._watch(actor, watch, group))

    def _new_watch(self, actor: Actor, group: int) -> Watch:
        port, setting = self.wire.port, self.setting

        def dispatcher(lease: Lease) -> DispatchDue:
            self.kernel.tell(actor.name, f"holds the lease of {group}, epoch {lease.epoch}")
            return DispatchDue(
                jobs=port(actor, "jobs"),
                due=port(actor, "due"),
                runs=port(actor, "runs"),
                queue=port(actor, "queue"),
                control=port(actor, "control"),
                clock=actor,
                executor=actor,
                shards=range(group, setting.shards, setting.groups),
                epoch=lease.epoch,
                shares=setting.shares,
            )

        lease = HoldLease(port(actor, "control"), group=group, holder=actor.name)
        return Watch(lease, dispatcher)

    def _watch(self, actor: Actor, watch: Watch, group: int) -> None:
        end_at = actor.now() + LIFE
        while (now := actor.now()) < end_at:
            self.steps_at[actor.name] = now
            try:
                _, again_at = watch.step(now)
            except UnavailableError:
                again_at = now + _AFTER_TROUBLE
            actor.sleep(max(min(again_at, end_at) - actor.now(), timedelta()) + self.drag())
        try:
            watch.end()
        except UnavailableError as error:
            self.kernel.tell(actor.name, str(error))
        self._warm.append((group, actor, watch))

    # The executors

    def start_worker(self, pool: str) -> Actor:
        """A worker process, restarted when it dies for as long as `works`."""
        actor = self.process("worker")
        self.workers.append(actor)
        execute_run = self._execute_run(actor, pool)
        inbox = self.wire.port(actor, "inbox", self.stores.queue.queues[pool])
        for _ in range(self.setting.slots):
            self.start(actor, lambda: self._serve(actor, inbox, execute_run))
        return actor

    def _serve(self, actor: Actor, inbox: Any, execute_run: ExecuteRun) -> None:
        """One slot."""
        while not actor.stopping:
            try:
                received = inbox.receive(1, hidden_for=LEASE)
            except UnavailableError:
                self.kernel.pause(SECOND)
                continue
            if not received:
                self.kernel.pause(self.kernel.dice.choice(_IDLE))
            for delivery in received:
                self._carry_out(actor, execute_run, delivery)

    def _carry_out(
        self, actor: Actor, execute_run: ExecuteRun, delivery: MemoryDelivery, **terms: Any
    ) -> bool:
        """Handle a message, and acknowledge it if it is done. Returns whether it was."""
        port = self.wire.port(actor, "delivery", delivery)
        try:
            handled = execute_run.handle(port, **({"stopping": lambda: actor.stopping} | terms))
            self.kernel.tell(actor.name, f"{handled.disposition.value}: {handled.reason}")
            if handled.disposition is Disposition.ACKNOWLEDGE:
                port.acknowledge()
                return True
        except UnavailableError as error:
            self.kernel.tell(actor.name, f"stays in the queue: {error}")
        return False

    def invoke_executor(self, pool: str) -> None:
        """As the event source mapping does: a process with a batch, hidden for as long as it may
        take.
        """
        queue = self.stores.queue.queues[pool]
        batch = queue.receive(_LAMBDA_BATCH, hidden_for=_LAMBDA_TIME)
        if not batch:
            return
        actor = self.process("lambda")
        self.workers.append(actor)
        execute_run = self._execute_run(actor, pool)
        end_at = actor.now() + _LAMBDA_TIME

        def carry_out() -> None:
            left_behind: set[str] = set()
            for delivery in batch:
                group = delivery.message.group
                if group in left_behind:
                    self.wire.port(actor, "delivery", delivery).hide(timedelta())
                    continue
                try:
                    self.wire.port(actor, "delivery", delivery).hide(LEASE)
                except UnavailableError:
                    left_behind.add(group)
                    continue
                done = self._carry_out(
                    actor,
                    execute_run,
                    delivery,
                    stopping=lambda: actor.stopping or end_at - actor.now() < _HAND_BACK_BEFORE,
                    longest=max(end_at - actor.now() - _HAND_BACK_BEFORE, timedelta(seconds=1)),
                )
                if not done:
                    left_behind.add(group)

        self.start(actor, carry_out)

    def _execute_run(self, actor: Actor, pool: str) -> ExecuteRun:
        port, tokens = self.wire.port, count(1)
        return ExecuteRun(
            jobs=port(actor, "jobs"),
            runs=port(actor, "runs"),
            due=port(actor, "due"),
            files=port(actor, "files"),
            script=RunScript(
                scripts=port(actor, "scripts"),
                runner=_Runner(self, actor),
                secrets=port(actor, "secrets"),
                job_role=None,
                clock=actor,
                bucket=BUCKET,
            ),
            dead_letters=port(actor, "dead_letters"),
            events=port(actor, "events"),
            clock=actor,
            terms=Terms(actor.name, pool, LEASE, output_cap=1_000),
            background=actor,
            new_token=lambda: f"{actor.name}-{next(tokens)}",
        )

    # The auditor

    def invoke_auditor(self, *, anew: bool = False) -> None:
        actor = self.process("auditor")
        self.requests.append(actor)
        port, setting = self.wire.port, self.setting
        audit = AuditJobs(
            jobs=port(actor, "jobs"),
            due=port(actor, "due"),
            runs=port(actor, "runs"),
            queue=port(actor, "queue"),
            control=port(actor, "control"),
            clock=actor,
            executor=actor,
            pools=POOLS,
            write_shards=setting.shards,
            read_shards=setting.shards,
            every=timedelta(days=1),
        )

        def go_on() -> None:
            for report in audit.go_on(actor.now() + timedelta(minutes=14), anew=anew):
                self.kernel.tell(actor.name, f"{report}")

        self.start(actor, go_on)

    # The API

    def request(self, tenant: str, do: Callable[[Client], None]) -> Future[Any]:
        """An API request of *tenant*: a process of its own."""
        actor = self.process("api")
        self.requests.append(actor)
        client = Client(self, actor, tenant)
        return self.start(actor, lambda: do(client))

    def new_uid(self) -> str:
        return f"uid{next(self._uids):05d}"


class Client:
    """What an API request works with."""

    def __init__(self, system: System, actor: Actor, tenant: str) -> None:
        self.system = system
        self.tenant = actor.tenant = tenant
        self.actor = actor
        port = system.wire.port
        self.jobs = ManageJobs(
            port(actor, "jobs"),
            Limits(POOLS, BUCKET, system.setting.shares.quotas),
            FindUnsent(
                port(actor, "due"), port(actor, "control"), read_shards=system.setting.shards
            ),
        )
        self.backfills = ManageBackfills(
            port(actor, "jobs"),
            FindUnsent(
                port(actor, "due"), port(actor, "control"), read_shards=system.setting.shards
            ),
        )
        self.requests: RequestStore = port(actor, "requests")
        self.runs_port: RunStore = port(actor, "runs")
        self.runs = ManageRuns(
            port(actor, "jobs"),
            self.runs_port,
            pools=POOLS,
            retention=timedelta(days=90),
            clock=actor,
            executor=actor,
        )

    def once(self, key: str, body: str, do: Callable[[Once], str]) -> str:
        """The answer to a request that bears *key*, as `functions/api/idempotency.py` has it."""
        answers = AnswerOnce(self.requests, self.tenant, key)
        asked = answers.begin(body, self.actor.now())
        if asked.answer is not None:
            return asked.answer
        try:
            answer = do(asked)
        except (ConflictError, InvalidInputError, NotFoundError, QuotaUsedUpError):
            answers.refuse(asked)
            raise
        return answers.finish(asked, answer)


@dataclass(frozen=True, slots=True)
class _Runner:
    """`ScriptRunner`: scripts that the dice write."""

    system: System
    actor: Actor
    kinds: list[dict[str, Any]] = field(default_factory=list)

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        dice = self.system.kernel.dice
        script = Script(
            exit_code=dice.choice([0, 0, 0, 1, 1]),
            lasts=timedelta(seconds=dice.choice([0, 0, 0, 1, 3, 25, 90])),
            frozen=dice.random() < 0.06,
            saves=dice.choice([None, None, b"1"]),
            stdout=dice.choice(["", "", "line\n" * 400]),
        )
        environment = call.environment
        execution_id = environment["NEXTFIRE_EXECUTION_ID"]
        attempt = int(environment["NEXTFIRE_ATTEMPT"])
        self.system.scripts_started.append(
            Started(
                execution_id,
                attempt,
                self.actor.name,
                call.payload,
                self.system.kernel.clock.now(),
            )
        )
        self.system.kernel.tell(
            self.actor.name,
            f"SCRIPT {execution_id} attempt {attempt}: {script.lasts.total_seconds():.0f} s, "
            f"exit {script.exit_code}{', frozen' if script.frozen else ''}",
        )
        runner = MemoryScriptRunner(self.actor)
        runner.scripts.append(script)
        key = parse_execution_id(environment["NEXTFIRE_TENANT"], execution_id)
        with self.system.effects.of(self.actor, key, attempt, frozen=script.frozen):
            return runner.run(call, supervisor)
