"""The worker process: its adapters, its threads and its signals.

It does not begin where its clock is more than 5 s off; see `ServePool`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType

from pydantic import ValidationError

from nextfire.adapters.aws import SystemClock, sqs
from nextfire.adapters.aws_errors import failed
from nextfire.adapters.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.service_clock import SqsServiceClock
from nextfire.adapters.task_protection import EcsTaskProtection
from nextfire.domain.ports import Journal
from nextfire.settings import ExecutorSettings, ecs_agent
from nextfire.usecases.serve_pool import ServePool, StopWaiting, Threads, clock_fault
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.telemetry import WorkerTelemetry
from nextfire.wiring.worker import WorkerPorts, build_worker


@contextmanager
def threads(slots: int) -> Iterator[Threads]:
    """The threads of a worker with *slots*; at the end they have done their work."""
    with (
        ThreadPoolExecutor(1, thread_name_prefix="acknowledger") as background,
        ThreadPoolExecutor(slots, thread_name_prefix="slot") as pool,
    ):
        yield Threads(
            slots=pool,
            size=slots,
            background=background,
            wait=lambda works, at_most: wait(works, at_most.total_seconds(), FIRST_COMPLETED),
            monotonic=time.monotonic,
        )


def stopper(pool: ServePool[SqsDelivery]) -> Callable[[int, FrameType | None], None]:
    """The handler of the signals that stop *pool*, which the main thread serves."""

    def stop(_signum: int, _frame: FrameType | None) -> None:
        if pool.stop():
            raise StopWaiting

    return stop


def main(journal: Journal[SqsDelivery]) -> None:
    """Serve the pool that the environment names until SIGTERM or SIGINT, or for one run. What it
    holds meanwhile is listed in *journal*.

    Raises:
        SystemExit: It cannot, and why.
    """
    try:
        settings = ExecutorSettings.read()
    except ValidationError as error:
        sys.exit(f"The environment (NEXTFIRE_…) is not that of a worker:\n{error}")
    telemetry = WorkerTelemetry("worker")
    name = f"{socket.gethostname()}-{os.getpid()}"
    with threads(settings.slots) as its_threads:
        pool = build_worker(
            _ports(settings, its_threads, journal, telemetry),
            executor_config(settings, worker=name),
            telemetry,
            one_run=settings.isolation == "task",
        )
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, stopper(pool))
        telemetry.logger.info("serves", pool=settings.pool, slots=settings.slots, worker=name)
        pool.serve()
    telemetry.logger.info("has ended", worker=name)


def _ports(
    settings: ExecutorSettings,
    its_threads: Threads,
    journal: Journal[SqsDelivery],
    telemetry: WorkerTelemetry,
) -> WorkerPorts[SqsDelivery]:
    """The adapters of a worker.

    Raises:
        SystemExit: It cannot work here, and why.
    """
    try:
        service_clock = SqsServiceClock(sqs(), SystemClock(), queue_url=settings.queue_url)
        if wrong := clock_fault(service_clock):
            sys.exit(wrong)
        return WorkerPorts(
            executor=executor_ports(settings),
            inbox=SqsInbox(sqs(long_poll=True), queue_url=settings.queue_url),
            journal=journal,
            service_clock=service_clock,
            protection=EcsTaskProtection(
                ecs_agent(), monotonic=time.monotonic, warn=telemetry.logger.warning
            ),
            threads=its_threads,
        )
    except ValueError as error:
        sys.exit(f"Scripts cannot be run here: {error}")
    except failed() as error:
        sys.exit(
            f"The queue {settings.queue_url} cannot be used: {error}\n"
            "Check the AWS credentials, which are to be those of the pool's worker role, and the "
            "region (AWS_REGION)."
        )
