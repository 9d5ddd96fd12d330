"""Builds the executor's core and the process of the Lambda executor from their ports."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

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
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.hand_over import HandOver
from nextfire.usecases.message_batch import MessageBatch, MessageNotices

CHILDREN_AT_ONCE = 16
"""How many children of a run an executor serves concurrently."""


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


def execute_run_of(ports: ExecutorPorts, config: ExecutorConfig) -> ExecuteRun:
    """The use case that processes one message."""
    return ExecuteRun(
        jobs=ports.jobs,
        runs=ports.runs,
        due=ports.due,
        files=ports.files,
        target=ports.target,
        dead_letters=ports.dead_letters,
        events=ports.events,
        clock=ports.clock,
        config=config,
        background=ports.background,
        hand_over=HandOver(
            jobs=ports.jobs,
            runs=ports.runs,
            due=ports.due,
            joins=ports.joins,
            queue=ports.queue,
            clock=ports.clock,
            quotas=ports.quotas,
            executor=ports.children,
        ),
    )


def build_executor(
    ports: ExecutorPorts, config: ExecutorConfig, notices: MessageNotices
) -> MessageBatch[Any]:
    """The process of the Lambda executor. Each invocation processes a batch, which Lambda receives
    with the queue's visibility timeout and deletes.
    """
    return MessageBatch(execute_run_of(ports, config), notices, lease=config.lease)
