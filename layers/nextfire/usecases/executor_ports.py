"""The ports of an executor."""

from __future__ import annotations

from concurrent.futures import Executor

from nextfire.dataclass import dataclass
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.domain.ports.events import Events
from nextfire.domain.ports.jobs import JobStore
from nextfire.domain.ports.joins import JoinStore
from nextfire.domain.ports.queues import DeadLetters, RunQueue
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.ports.scripts import RunFiles
from nextfire.domain.ports.targets import TargetRunner
from nextfire.domain.quotas import TenantQuotas


@dataclass(frozen=True, slots=True)
class ExecutorPorts:
    """The ports of an executor. `background` writes the logs. `queue`: of its pool, for the runs of
    children; `children` serves several of them concurrently; `quotas`: each tenant's maximums;
    None: unknown, so that only watchers send them.
    """

    jobs: JobStore
    runs: RunStore
    due: DueStore
    files: RunFiles
    target: TargetRunner
    dead_letters: DeadLetters
    events: Events
    clock: Clock
    background: Executor
    joins: JoinStore
    queue: RunQueue
    children: Executor
    quotas: TenantQuotas | None = None
