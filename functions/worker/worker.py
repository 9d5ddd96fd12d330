"""The worker process: one thread receives, one thread a slot carries runs out."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import FrameType

from pydantic import ValidationError

from nextfire.adapters.aws import sqs
from nextfire.adapters.run_queue import SqsDelivery, SqsInbox
from nextfire.domain.errors import UnavailableError
from nextfire.settings import ExecutorSettings
from nextfire.usecases.execute_run import Disposition, ExecuteRun
from nextfire.wiring.execution import build_execute_run
from nextfire.wiring.telemetry import Telemetry

_LONG_POLL = timedelta(seconds=20)
_RECEIVE_AT_MOST = 10
_AFTER_TROUBLE = 1.0


class _StopReceiving(BaseException):
    """Ends a long poll from the signal handler. No Exception, so that no library swallows it."""


class Worker:
    """Serves one pool with `settings.slots` runs at a time."""

    def __init__(
        self,
        settings: ExecutorSettings,
        inbox: SqsInbox,
        execute_run: ExecuteRun,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._inbox = inbox
        self._execute_run = execute_run
        self._telemetry = telemetry
        self._stopping = False
        self._receiving = False
        self._free = threading.Semaphore(settings.slots)
        self._telling = threading.Lock()

    def stop(self, signum: int = 0, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Signal handler: receive no more, hand back what runs."""
        # A plain flag: an Event's lock may be held by the very code that the signal interrupts.
        self._stopping = True
        if self._receiving:
            raise _StopReceiving

    def serve(self) -> None:
        """Receive and carry out until `stop` is called."""
        with ThreadPoolExecutor(self._settings.slots) as slots:
            while not self._stopping:
                # A slot first: a message received with none free would age unseen by others.
                if not self._free.acquire(timeout=1):
                    continue
                free = 1
                while free < _RECEIVE_AT_MOST and self._free.acquire(blocking=False):
                    free += 1
                groups = self._receive(free)
                for _ in range(free - len(groups)):
                    self._free.release()
                for deliveries in groups:
                    slots.submit(self._carry_out, deliveries)

    def _receive(self, most: int) -> list[list[SqsDelivery]]:
        """Messages, by group: those of one group are carried out one after the other."""
        try:
            self._receiving = True
            deliveries = self._inbox.receive(most, wait=_LONG_POLL, hidden_for=self._settings.lease)
        except _StopReceiving:
            return []
        except Exception as error:
            self._receiving = False  # the pause below is ended by the event, not by the signal
            self._telemetry.logger.warning("receiving failed", exc_info=error)
            self._pause()
            return []
        finally:
            self._receiving = False
        groups: dict[str, list[SqsDelivery]] = defaultdict(list)
        for delivery in deliveries:
            groups[delivery.group].append(delivery)
        return list(groups.values())

    def _pause(self) -> None:
        over_at = time.monotonic() + _AFTER_TROUBLE
        while not self._stopping and time.monotonic() < over_at:
            time.sleep(0.05)

    def _carry_out(self, deliveries: Sequence[SqsDelivery]) -> None:
        try:
            for delivery in deliveries:
                if not self._carry_out_one(delivery):
                    # Those behind it stay in order: they come again after it.
                    return
        finally:
            self._free.release()

    def _carry_out_one(self, delivery: SqsDelivery) -> bool:
        try:
            handled = self._execute_run.handle(delivery, stopping=lambda: self._stopping)
            acknowledge = handled.disposition is Disposition.ACKNOWLEDGE
            if acknowledge:
                delivery.acknowledge()
        except UnavailableError as error:
            self._telemetry.logger.warning("stays in the queue", error=str(error))
            return False
        except Exception:
            self._telemetry.logger.exception("stays in the queue")
            return False
        with self._telling:
            self._telemetry.handled(handled)
            self._telemetry.flush()
        return acknowledge


def main() -> None:
    """Serve the pool that the environment names until SIGTERM or SIGINT."""
    try:
        settings = ExecutorSettings.read()
    except ValidationError as error:
        sys.exit(f"The environment (NEXTFIRE_…) is not that of a worker:\n{error}")
    telemetry = Telemetry("worker")
    name = f"{socket.gethostname()}-{os.getpid()}"
    worker = Worker(
        settings,
        SqsInbox(sqs(long_poll=True), queue_url=settings.queue_url),
        build_execute_run(settings, worker=name),
        telemetry,
    )
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, worker.stop)
    telemetry.logger.info("serves", pool=settings.pool, slots=settings.slots, worker=name)
    worker.serve()
    telemetry.logger.info("has ended", worker=name)
