"""The processes of a stack, under simulated time: a watcher, and a worker for each message.

They are built by the functions of `nextfire.wiring`, as on AWS. Nothing polls: the watcher is
invoked when an entry is due, a worker when a message is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count

from nextfire.domain.due import DueEntry, Slot
from nextfire.domain.instants import MINUTE, floor_minute
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.targets import TargetRunner
from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.script.runner import ScriptTarget
from nextfire.testing.api import BUCKET
from nextfire.testing.calls import Calls
from nextfire.testing.kernel import Actor, Kernel, SimulatedFuture
from nextfire.testing.memory.clock import Clock
from nextfire.testing.memory.control import MemoryControlStore
from nextfire.testing.memory.due import MemoryDueStore
from nextfire.testing.memory.executors import InlineExecutor
from nextfire.testing.memory.faults import Faults
from nextfire.testing.memory.jobs import MemoryJobStore
from nextfire.testing.memory.notices import MemoryNotices
from nextfire.testing.memory.queues import MemoryDeadLetters, MemoryDelivery, MemoryRunQueue
from nextfire.testing.memory.runs import MemoryRunStore
from nextfire.testing.memory.stores import Stores
from nextfire.testing.scripts import KitRunner, Scripts
from nextfire.usecases.dispatch.gates import Shares
from nextfire.usecases.dispatch.ports import WatcherPorts
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.hold_lease import HoldLease
from nextfire.wiring.executor import build_executor
from nextfire.wiring.watcher import WatcherConfig, build_watcher

LEASE = timedelta(seconds=60)
"""As the default of `ExecutorSettings`."""
_IDLE = timedelta(days=36_500)


class Bell:
    """Wakes a waiting task."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rung: SimulatedFuture[None] = SimulatedFuture(kernel)

    def ring(self) -> None:
        if not self._rung.done():
            self._rung.set_result(None)

    def wait(self, until: datetime | None) -> None:
        """Yield until *until* or until the bell is rung; not if it was, since the last wait."""
        now = self._kernel.clock.now()
        self._kernel.wait([self._rung], _IDLE if until is None else max(until - now, timedelta()))
        self._rung = SimulatedFuture(self._kernel)


class WakingDueStore(MemoryDueStore):
    """Calls *changed* before an entry is stored."""

    def __init__(self, changed: Callable[[], object]) -> None:
        super().__init__()
        self._changed = changed

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        self._changed()
        return super().put(entries, now)


class WakingRunQueue(MemoryRunQueue):
    """Calls *changed* before messages are sent."""

    def __init__(self, clock: Clock, pools: Collection[str], changed: Callable[[], object]) -> None:
        super().__init__(clock, pools)
        self._changed = changed

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        self._changed()
        return super().send(messages)


class Processes:
    """Starts, and restarts, the processes. `down`: none is started, as in an outage."""

    def __init__(self, kernel: Kernel, pools: Mapping[str, str], shares: Shares) -> None:
        self.down = False
        self._due_bell = Bell(kernel)
        self._bells = {pool: Bell(kernel) for pool in pools}
        self.stores = stores = _stores(kernel.clock, pools, self._due_bell.ring, self._ring_all)
        self.scripts = Scripts()
        self.calls = Calls()
        self.faults = Faults()
        self.notices = MemoryNotices()
        self._kernel, self._shares = kernel, shares
        self._names = count(1)
        through = self.faults.through
        self._call_targets: dict[str, TargetRunner] = {
            pool: self.calls.target(
                pool,
                through(stores.secrets, "secrets"),
                kernel.clock,
                through(stores.endpoints, "endpoints"),
            )
            for pool, targets in pools.items()
            if targets == "calls"
        }
        aws = Actor(kernel, "aws")
        self._loops = [aws.submit(self._watch), *(aws.submit(self._serve, pool) for pool in pools)]

    def check(self) -> None:
        """Raises:
        Exception: What ended a loop, or what a process reported as a defect.
        """
        for loop in self._loops:
            if loop.done():
                loop.result()
        self.notices.assert_no_defect()
        self.notices.outcomes.clear()
        self.faults.calls.clear()

    def idle(self) -> None:
        """Do what watchers do while nothing is due: one takes the lease, and falls asleep."""
        if not self.down:
            now = self._kernel.clock.now()
            lease = HoldLease(self.stores.control, group=0, holder="watcher")
            lease.step(now)
            lease.release()
            self._pass_empty_buckets(now)

    def restart(self) -> None:
        """End an outage."""
        self.down = False
        self._due_bell.ring()
        self._ring_all()

    def _ring_all(self) -> None:
        for bell in self._bells.values():
            bell.ring()

    # The watcher

    def _watch(self) -> None:
        actor = Actor(self._kernel, "watcher")
        config = WatcherConfig(0, actor.name, [0], self._shares)
        while True:
            next_at = min((entry.at for _, entry in self._entries()), default=None)
            if self.down or next_at is None or next_at > actor.now():
                self._due_bell.wait(None if self.down else next_at)
                continue
            self._pass_empty_buckets(actor.now())
            life = build_watcher(self._watcher_ports(actor), config, self.notices)
            again_at = actor.now()
            while self._is_due(actor.now()):
                actor.sleep(max(again_at - actor.now(), timedelta()))
                again_at = life.turn(actor.now())
            life.end()

    def _watcher_ports(self, actor: Actor) -> WatcherPorts:
        through, stores = self.faults.through, self.stores
        return WatcherPorts(
            jobs=through(stores.jobs, "jobs"),
            due=through(stores.due, "due"),
            runs=through(stores.runs, "runs"),
            queue=through(stores.queue, "queue"),
            control=through(stores.control, "control"),
            clock=actor,
            executor=InlineExecutor(),
            lanes=InlineExecutor(),
        )

    def _entries(self) -> Iterator[tuple[Slot, DueEntry]]:
        for slot, item in self.stores.due.items.items():
            if isinstance(item, DueEntry):
                yield slot, item

    def _is_due(self, now: datetime) -> bool:
        return not self.down and any(entry.at <= now for _, entry in self._entries())

    def _pass_empty_buckets(self, now: datetime) -> None:
        """Move the cursor, as the watchers did that found nothing in the buckets until now."""
        control = self.stores.control
        first = min((slot.minute for slot, _ in self._entries()), default=now)
        reached = min(first, floor_minute(now) - MINUTE)
        if reached > control.cursors([0]).get(0, reached):
            lease = control.lease(0)
            control.move_cursor(0, reached, lease.epoch if lease else 0)

    # The workers

    def _serve(self, pool: str) -> None:
        fifo = self.stores.queue.queues[pool]
        while True:
            while not self.down and (received := fifo.receive(1, hidden_for=LEASE)):
                self._work(pool, received[0])
            self._bells[pool].wait(None if self.down else fifo.next_visible_at)

    def _work(self, pool: str, delivery: MemoryDelivery) -> None:
        actor = Actor(self._kernel, f"worker-{next(self._names)}")
        config = ExecutorConfig(actor.name, pool, LEASE)
        batch = build_executor(self._executor_ports(actor, pool), config, self.notices)

        def work() -> None:
            if not batch.carry_out([delivery], stopping=lambda: actor.stopping):
                delivery.acknowledge()
            self._bells[pool].ring()

        actor.submit(work)

    def _executor_ports(self, actor: Actor, pool: str) -> ExecutorPorts:
        through, stores = self.faults.through, self.stores
        return ExecutorPorts(
            jobs=through(stores.jobs, "jobs"),
            runs=through(stores.runs, "runs"),
            due=through(stores.due, "due"),
            files=through(stores.files, "files"),
            target=self._call_targets.get(pool) or self._script_target(actor),
            dead_letters=through(stores.dead_letters, "dead_letters"),
            events=through(stores.events, "events"),
            clock=actor,
            background=InlineExecutor(),
            joins=through(stores.joins, "joins"),
            queue=through(stores.queue.of(pool), "queue"),
            children=InlineExecutor(),
            quotas=self._shares.quotas,
        )

    def _script_target(self, actor: Actor) -> TargetRunner:
        script = ScriptTarget(
            scripts=self.scripts,
            bucket=BUCKET,
            runner=KitRunner(self.scripts, actor),
            secrets=self.faults.through(self.stores.secrets, "secrets"),
            job_role=None,
            clock=actor,
        )
        return TargetsByKind({TargetKind.SCRIPT: script})


def _stores(
    clock: Clock,
    pools: Collection[str],
    due_changed: Callable[[], object],
    queue_changed: Callable[[], object],
) -> Stores:
    due = WakingDueStore(due_changed)
    jobs = MemoryJobStore(due)
    return Stores(
        due,
        jobs,
        MemoryControlStore(),
        WakingRunQueue(clock, pools, queue_changed),
        MemoryDeadLetters(clock),
        MemoryRunStore(due, jobs),
    )
