"""The worker process: its adapters, its threads and its signals.

It does not start if its clock deviates by more than 5 s; see `ServePool`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait  # noqa: TID251 — the process
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from pydantic import ValidationError

from nextfire.adapters.aws.errors import failed
from nextfire.domain.ports.queues import Journal
from nextfire.settings import ExecutorSettings
from nextfire.usecases.serve_pool import ServePool, StopWaiting, Threads, clock_fault
from nextfire.wiring.execution import executor_config
from nextfire.wiring.telemetry import WorkerTelemetry
from nextfire.wiring.worker import WorkerPorts, build_worker
from nextfire.wiring.worker_ports import service_clock, worker_ports


@contextmanager
def threads(slots: int) -> Iterator[Threads]:
    """The threads of a worker with *slots* slots. On exit, waits until their tasks are done."""
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


def stopper(pool: ServePool[Any]) -> Callable[[int, FrameType | None], None]:
    """The signal handler that stops *pool*, which the main thread serves."""

    def stop(_signum: int, _frame: FrameType | None) -> None:
        if pool.stop():
            raise StopWaiting

    return stop


def main(journal: Journal[Any], beat: Callable[[], None] = lambda: None) -> None:
    """Serve the pool in the environment variables until SIGTERM or SIGINT, or for one run.

    The messages that it holds are listed in *journal*. *beat* is called each time the loop
    continues, at least every 20 s.

    Raises:
        SystemExit: The worker cannot serve the pool. Holds the reason.
    """
    try:
        settings = ExecutorSettings.read()
    except ValidationError as error:
        sys.exit(f"Invalid environment variables (NEXTFIRE_…) of a worker:\n{error}")
    telemetry = WorkerTelemetry()
    name = f"{socket.gethostname()}-{os.getpid()}"
    with threads(settings.slots) as its_threads:
        pool = build_worker(
            _beating(_ports(settings, its_threads, journal, telemetry), beat),
            executor_config(settings, worker=name),
            telemetry,
            one_run=settings.isolation == "task",
        )
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, stopper(pool))
        telemetry.logger.info("serving", pool=settings.pool, slots=settings.slots, worker=name)
        telemetry.sample(settings.log_sample)
        try:
            pool.serve()
        finally:
            telemetry.flush()
    telemetry.logger.info("stopped", worker=name)


def _beating(ports: WorkerPorts[Any], beat: Callable[[], None]) -> WorkerPorts[Any]:
    """*ports*, of which the loop calls *beat* whenever it continues."""
    protection = ports.protection

    class Beating:
        def keep(self, *, working: bool) -> None:
            beat()
            protection.keep(working=working)

    return replace(ports, protection=Beating())


def _ports(
    settings: ExecutorSettings,
    its_threads: Threads,
    journal: Journal[Any],
    telemetry: WorkerTelemetry,
) -> WorkerPorts[Any]:
    """The adapters of a worker.

    Raises:
        SystemExit: The worker cannot run on this host. Holds the reason.
    """
    try:
        if wrong := clock_fault(service_clock(settings)):
            sys.exit(wrong)
        return worker_ports(settings, its_threads, journal, telemetry)
    except ValueError as error:
        sys.exit(f"This host cannot run scripts: {error}")
    except failed() as error:
        sys.exit(
            f"Cannot access the queue {settings.queue_url}: {error}\n"
            "Check the AWS credentials, which must be those of the pool's worker role, and the "
            "region (AWS_REGION)."
        )
