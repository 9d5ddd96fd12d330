"""The worker process: one thread receives, one thread a slot carries runs out.

It does not begin where its clock is more than 5 s off, and receives nothing while it is: leases
are instants, and a wrong clock would take runs from those who are at work on them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from types import FrameType

from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 — to tell it in words
from pydantic import ValidationError

from functions.worker.acknowledger import Acknowledger
from nextfire.adapters.aws import SystemClock, sqs
from nextfire.adapters.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.service_clock import SqsServiceClock
from nextfire.adapters.task_protection import EcsTaskProtection
from nextfire.domain.errors import UnavailableError
from nextfire.settings import ExecutorSettings, ecs_agent
from nextfire.usecases.execute_run import Disposition, ExecuteRun
from nextfire.wiring.execution import build_execute_run
from nextfire.wiring.telemetry import Telemetry

_LONG_POLL = timedelta(seconds=20)
_POLL_AT_WORK = timedelta(seconds=2)
"""While runs are in work. A poll that is broken off goes on at the queue, and takes a message that
is handed back meanwhile for nobody, until a lease later; so this one is awaited."""
_RECEIVE_AT_MOST = 10
_AFTER_TROUBLE = 1.0
_CLOCK_TOLERANCE = timedelta(seconds=5)
_CLOCK_EVERY = 300.0
"""Seconds between two looks at the service's clock; while ours is off, `_AFTER_TROUBLE`."""


class _StopReceiving(BaseException):
    """Ends a long poll from the signal handler. No Exception, so that no library swallows it."""


class Worker:
    """Serves one pool with `settings.slots` runs at a time."""

    def __init__(
        self,
        settings: ExecutorSettings,
        inbox: SqsInbox,
        execute_run: ExecuteRun,
        service_clock: SqsServiceClock,
        protection: EcsTaskProtection,
        telemetry: Telemetry,
    ) -> None:
        self._settings = settings
        self._inbox = inbox
        self._execute_run = execute_run
        self._service_clock = service_clock
        self._protection = protection
        self._telemetry = telemetry
        self._stopping = False
        self._receiving = False
        self._clock_again_at = time.monotonic() + _CLOCK_EVERY
        self._working: set[Future[None]] = set()
        self._free = threading.Semaphore(settings.slots)
        self._telling = threading.Lock()
        self._acknowledger = Acknowledger(inbox, telemetry)

    def stop(self, signum: int = 0, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Signal handler: receive no more, hand back what runs."""
        # A plain flag: an Event's lock may be held by the very code that the signal interrupts.
        self._stopping = True
        if self._receiving:
            self._receiving = False  # another signal must not raise once more, outside
            raise _StopReceiving

    def serve(self) -> None:
        """Receive and carry out until `stop` is called."""
        with self._acknowledger, ThreadPoolExecutor(self._settings.slots) as slots:
            while not self._stopping:
                self._working = {run for run in self._working if not run.done()}
                self._protection.keep(working=bool(self._working))
                if not self._clock_is_right():
                    self._pause()
                    continue
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
                    self._working.add(slots.submit(self._carry_out, deliveries))
        self._protection.keep(working=False)

    def _clock_is_right(self) -> bool:
        """Whether this machine's clock can be trusted; unknown counts as yes."""
        if time.monotonic() < self._clock_again_at:
            return True
        try:
            wrong = clock_fault(self._service_clock)
        except (UnavailableError, ClientError):
            wrong = None  # receiving will tell
        if wrong is None:
            self._clock_again_at = time.monotonic() + _CLOCK_EVERY
        else:
            self._telemetry.logger.error("receives nothing", reason=wrong)
        return wrong is None

    def _receive(self, most: int) -> list[list[SqsDelivery]]:
        """Messages, by group: those of one group are carried out one after the other."""
        deliveries: list[SqsDelivery] = []
        try:
            # The signal may come at any moment, so whatever it raises is caught outside.
            idle = all(run.done() for run in self._working)
            try:
                self._receiving = idle
                if self._stopping:  # told before that; nothing would end the long poll
                    return []
                deliveries = self._inbox.receive(
                    most,
                    wait=_LONG_POLL if idle else _POLL_AT_WORK,
                    hidden_for=self._settings.lease,
                )
            finally:
                self._receiving = False
        except _StopReceiving:
            pass  # what had come already is handed back by the slots
        except Exception as error:
            self._telemetry.logger.warning("receiving failed", exc_info=error)
            self._pause()
            return []
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
            for begun, delivery in enumerate(deliveries):
                if self._stopping:
                    self._hand_back(deliveries[begun:])
                    return
                if not self._carry_out_one(delivery):
                    # Those behind it stay in order: they come again after it.
                    self._hand_back(deliveries[begun + 1 :])
                    return
        finally:
            self._free.release()

    def _hand_back(self, deliveries: Sequence[SqsDelivery]) -> None:
        """Make visible what was not begun: as long as one of its messages is hidden, nobody gets
        any of the group.
        """
        for delivery in deliveries:
            try:
                delivery.hide(timedelta())
            except Exception as error:
                # It comes again when the lease is over.
                self._telemetry.logger.warning("not handed back", exc_info=error)

    def _carry_out_one(self, delivery: SqsDelivery) -> bool:
        try:
            handled = self._execute_run.handle(delivery, stopping=lambda: self._stopping)
        except UnavailableError as error:
            self._telemetry.logger.warning("stays in the queue", error=str(error))
            return False
        except Exception:
            self._telemetry.logger.exception("stays in the queue")
            return False
        acknowledge = handled.disposition is Disposition.ACKNOWLEDGE
        if acknowledge:
            self._acknowledger.put(delivery)
        with self._telling:
            self._telemetry.handled(handled)
            self._telemetry.flush()
        return acknowledge


def clock_fault(service_clock: SqsServiceClock) -> str | None:
    """What is wrong with this machine's clock, and what to do about it; None: nothing.

    Raises:
        UnavailableError: The service did not answer.
        botocore.exceptions.ClientError: It refused.
    """
    deviation = service_clock.deviation()
    if abs(deviation) <= _CLOCK_TOLERANCE:
        return None
    way = "ahead" if deviation > timedelta() else "behind"
    return (
        f"This machine's clock is {abs(deviation).total_seconds():.0f} s {way} of AWS's, more than "
        f"{_CLOCK_TOLERANCE.total_seconds():.0f} s: synchronise it (NTP)."
    )


def main() -> None:
    """Serve the pool that the environment names until SIGTERM or SIGINT.

    Raises:
        SystemExit: It cannot, and why.
    """
    try:
        settings = ExecutorSettings.read()
    except ValidationError as error:
        sys.exit(f"The environment (NEXTFIRE_…) is not that of a worker:\n{error}")
    telemetry = Telemetry("worker")
    name = f"{socket.gethostname()}-{os.getpid()}"
    try:
        service_clock = SqsServiceClock(sqs(), SystemClock(), queue_url=settings.queue_url)
        if wrong := clock_fault(service_clock):
            sys.exit(wrong)
        worker = Worker(
            settings,
            SqsInbox(sqs(long_poll=True), queue_url=settings.queue_url),
            build_execute_run(settings, worker=name),
            service_clock,
            EcsTaskProtection(ecs_agent(), monotonic=time.monotonic, warn=telemetry.logger.warning),
            telemetry,
        )
    except ValueError as error:
        sys.exit(f"Scripts cannot be run here: {error}")
    except (UnavailableError, BotoCoreError, ClientError) as error:
        sys.exit(
            f"The queue {settings.queue_url} cannot be used: {error}\n"
            "Check the AWS credentials, which are to be those of the pool's worker role, and the "
            "region (AWS_REGION)."
        )
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, worker.stop)
    telemetry.logger.info("serves", pool=settings.pool, slots=settings.slots, worker=name)
    worker.serve()
    telemetry.logger.info("has ended", worker=name)
