"""Builds the worker's process from its ports."""

from __future__ import annotations

from typing import Generic

from nextfire.dataclass import dataclass
from nextfire.domain.ports.clocks import ServiceClock
from nextfire.domain.ports.queues import D, Inbox, Journal
from nextfire.domain.ports.worker import TaskDeployment, TaskProtection
from nextfire.usecases.acknowledger import Acknowledger
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.executor_config import ExecutorConfig
from nextfire.usecases.executor_ports import ExecutorPorts
from nextfire.usecases.message_batch import MessageBatch, MessageNotices
from nextfire.usecases.serve_pool import ServePool, Threads


@dataclass(frozen=True, slots=True)
class WorkerPorts(Generic[D]):
    """The ports of a worker, in addition to those of an executor."""

    executor: ExecutorPorts
    inbox: Inbox[D]
    journal: Journal[D]
    service_clock: ServiceClock
    protection: TaskProtection
    deployment: TaskDeployment
    threads: Threads


def build_worker(
    ports: WorkerPorts[D], config: ExecutorConfig, notices: MessageNotices, *, one_run: bool = False
) -> ServePool[D]:
    """A worker's process. It serves its pool until it is stopped; with *one_run*, one message."""
    clock = ports.executor.clock
    acknowledger = Acknowledger(
        ports.inbox, ports.threads.background, clock, notices, ports.journal
    )
    execute_run = ExecuteRun(ports.executor, config)
    return ServePool(
        ports.inbox,
        MessageBatch(execute_run, notices, done=acknowledger.put),
        acknowledger,
        ports.journal,
        lease=config.lease,
        threads=ports.threads,
        clock=clock,
        service_clock=ports.service_clock,
        protection=ports.protection,
        deployment=ports.deployment,
        notices=notices,
        one_run=one_run,
    )
