"""Executors of a `World`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from nextfire.domain.target import TargetKind
from nextfire.targets.by_kind import TargetsByKind
from nextfire.targets.script.runner import ScriptTarget
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.handled import Disposition, Handled
from tests.builders import LEASE
from tests.fakes import InlineExecutor, MemoryDelivery

if TYPE_CHECKING:
    from tests.world import World


@dataclass(frozen=True, slots=True)
class Worker:
    """An executor called *name* on the queue of *pool*."""

    world: World
    name: str
    pool: str

    def handle(
        self,
        delivery: MemoryDelivery,
        stopping: Callable[[], bool] = lambda: False,
        longest: timedelta = timedelta.max,
    ) -> Handled:
        """Handle *delivery*; acknowledge it if the disposition says so."""
        world, through = self.world, self.world.faults.through
        scripts = ScriptTarget(
            scripts=through(world.script_store, "scripts"),
            bucket=world.bucket,
            runner=world.runner,
            secrets=through(world.secrets, "secrets"),
            job_role=world.job_role,
            clock=world.clock,
        )
        ports = ExecutorPorts(
            jobs=through(world.jobs, "jobs"),
            runs=through(world.runs, "runs"),
            due=through(world.due, "due"),
            files=through(world.files, "files"),
            target=TargetsByKind({TargetKind.SCRIPT: scripts} | dict(world.call_targets)),
            dead_letters=through(world.dead_letters, "dead_letters"),
            events=through(world.events, "events"),
            clock=world.clock,
            background=InlineExecutor(),
            joins=through(world.joins, "joins"),
            queue=through(world.queue.of(self.pool), "queue"),
            children=world.children,
            quotas=world.shares.quotas,
        )
        config = ExecutorConfig(
            self.name,
            self.pool,
            LEASE,
            output_cap=world.output_cap,
            log_cap=world.log_cap,
            retention=world.retention,
        )
        execute_run = ExecuteRun(ports, config)
        handled = execute_run.handle(delivery, stopping=stopping, longest=longest)
        if handled.disposition is Disposition.ACKNOWLEDGE:
            delivery.acknowledge()
        return handled

    def receive(self) -> MemoryDelivery | None:
        """Receive the next visible message and hide it for one lease."""
        return next(iter(self.world.queue.queues[self.pool].receive(1, hidden_for=LEASE)), None)

    def work_one(
        self,
        stopping: Callable[[], bool] = lambda: False,
        longest: timedelta = timedelta.max,
    ) -> Handled:
        """Handle the next visible message; there must be one."""
        delivery = self.receive()
        assert delivery is not None, f"no message is visible at {self.world.now}"
        return self.handle(delivery, stopping, longest)

    def work(self) -> list[Handled]:
        """Handle messages until none is visible."""
        done = []
        while (delivery := self.receive()) is not None:
            done.append(self.handle(delivery))
        return done
