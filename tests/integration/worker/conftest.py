"""The worker process on moto, in the main thread, and stopped by a signal as in production."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from functions.worker.worker import stopper, threads
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.aws.service_clock import SqsServiceClock
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.worker.ecs_deployment import EcsDeployment
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.adapters.worker.task_protection import EcsTaskProtection
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.run import RunState
from nextfire.settings import ExecutorSettings
from nextfire.usecases.serve_pool import ServePool
from nextfire.wiring import worker as wiring
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.telemetry import WorkerTelemetry
from nextfire.wiring.worker import WorkerPorts, build_worker
from tests.integration.deployment import Deployment, message_for

AT_MOST = 20.0
"""Timeout of a test in seconds."""


@contextmanager
def stopped_when(done: Callable[[], bool], stop: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    """Send *stop* to this process as soon as *done*; restore its signal handlers."""
    over = threading.Event()

    def wait() -> None:
        until = time.monotonic() + AT_MOST
        while not over.is_set():
            if done() or time.monotonic() > until:
                os.kill(os.getpid(), stop)
                return
            over.wait(0.02)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    watcher = threading.Thread(target=wait)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        for number, handler in before.items():
            signal.signal(number, handler)


def dispatch(
    system: Deployment, job: Job, minutes: int = 0, group: str | None = None
) -> RunMessage:
    message = message_for(job, floor_minute(job.created_at) - timedelta(minutes=minutes))
    system.send(message.encode(), group=group or message.run_id, dedup=message.run_id)
    return message


def state(system: Deployment, message: RunMessage) -> RunState | None:
    run = system.runs.get(message.key)
    return None if run is None else run.state


def counts(system: Deployment) -> tuple[int, int]:
    """The numbers of visible and of hidden messages."""
    answer = system.queues.get_queue_attributes(QueueUrl=system.queue_url, AttributeNames=["All"])
    attributes = answer["Attributes"]
    return (
        int(attributes["ApproximateNumberOfMessages"]),
        int(attributes["ApproximateNumberOfMessagesNotVisible"]),
    )


@pytest.fixture(autouse=True)
def _no_long_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for messages outside of moto, because it handles one request at a time."""
    receive = SqsInbox.receive

    def pause(
        inbox: SqsInbox, most: int, *, wait: timedelta, hidden_for: timedelta
    ) -> list[SqsDelivery]:
        assert timedelta() < wait <= timedelta(seconds=20)
        time.sleep(0.02)
        return receive(inbox, most, wait=timedelta(), hidden_for=hidden_for)

    monkeypatch.setattr(SqsInbox, "receive", pause)


class Agent(EcsTaskProtection):
    """Records the states reported to it, without repetitions."""

    def __init__(self) -> None:
        super().__init__(None, monotonic=time.monotonic, warn=lambda _: None)
        self.reported: list[bool] = []

    def keep(self, *, working: bool) -> None:
        if self.reported[-1:] != [working]:
            self.reported.append(working)


def serve(
    system: Deployment,
    queues: Any,
    until: Callable[[], bool],
    agent: Agent | None = None,
    kind: type[ServePool[SqsDelivery]] = ServePool,
) -> None:
    """Serve with the queue client *queues* until the signal arrives."""
    settings = ExecutorSettings.read()
    with threads(settings.slots) as its_threads, pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "ServePool", kind)
        ports = WorkerPorts(
            executor=executor_ports(settings, WorkerTelemetry()),
            inbox=SqsInbox(queues, queue_url=system.queue_url),
            journal=WorkerJournal(),
            service_clock=SqsServiceClock(queues, SystemClock(), queue_url=system.queue_url),
            protection=agent or Agent(),
            deployment=EcsDeployment(None, None, monotonic=time.monotonic, log=lambda _: None),
            threads=its_threads,
        )
        pool = build_worker(ports, executor_config(settings, worker="w"), WorkerTelemetry())
        with stopped_when(until):
            signal.signal(signal.SIGTERM, stopper(pool))
            pool.serve()
