"""The loop of a worker process: receive, process in slots, acknowledge, until stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, Generic, TypeVar

from nextfire.dataclass import dataclass
from nextfire.domain.ports.clocks import Clock, ServiceClock
from nextfire.domain.ports.queues import D, Inbox, Journal
from nextfire.domain.ports.worker import Notices, TaskDeployment, TaskProtection
from nextfire.usecases.acknowledger import Acknowledger
from nextfire.usecases.message_batch import MessageBatch

_LONG_POLL = timedelta(seconds=20)
BUSY_POLL = timedelta(seconds=2)
"""Poll duration while runs are running. This poll is never interrupted: SQS would continue it,
deliver to it a message that is handed back meanwhile, and so hide that message for a lease."""
_RECEIVE_AT_MOST = 10
_RETRY_AFTER = timedelta(seconds=1)
_SLOT_WAIT = timedelta(seconds=1)
"""Time between two updates of the task's protection while all slots are taken."""
_GATHERS_FOR, _GATHERS_EVERY = timedelta(milliseconds=60), timedelta(milliseconds=15)
_GATHERED_SHARE = 4
"""After all slots were taken, the worker waits until one in four is free, up to 60 ms, as long as
one more becomes free every 15 ms."""
_BEGINS_WITHIN = 2
"""In the first half of a lease, a message begins that was received with others of its group. Later,
its receipt could expire before its first heartbeat: another worker would receive it, too, and its
deletion would fail."""
_CLOCK_TOLERANCE = timedelta(seconds=5)
_CLOCK_CHECK_SECONDS = 300.0
"""Seconds between two checks of this machine's clock; while it is off, `_RETRY_AFTER`."""

T = TypeVar("T")


class StopWaiting(BaseException):
    """Ends a wait of `ServePool.serve`. Not an Exception, so that no library catches it."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a worker process.

    `slots` processes messages, up to `size` groups concurrently. `background` deletes messages, in
    one thread. `wait` returns when one of the futures is done, or after the duration. `monotonic`
    returns seconds.
    """

    slots: Executor
    size: int
    background: Executor
    wait: Callable[[Collection[Future[Any]], timedelta], object]
    monotonic: Callable[[], float]


class ServePool(Generic[D]):
    """Serves one pool's *inbox*, up to `threads.size` groups of messages concurrently.

    It receives nothing while this machine's clock is off by more than 5 s: leases are instants,
    and a wrong clock would take runs from workers that are alive.

    With `one_run` it receives a single message and ends when that is processed. While it is busy,
    ECS does not stop it: so it ends, too, when a newer deployment has replaced it.
    """

    def __init__(
        self,
        inbox: Inbox[D],
        batch: MessageBatch[D],
        acknowledger: Acknowledger[D],
        journal: Journal[D],
        *,
        lease: timedelta,
        threads: Threads,
        clock: Clock,
        service_clock: ServiceClock,
        protection: TaskProtection,
        deployment: TaskDeployment,
        notices: Notices,
        one_run: bool = False,
    ) -> None:
        self._inbox = inbox
        self._batch = batch
        self._acknowledger = acknowledger
        self._journal = journal
        self._lease = lease
        self._threads = threads
        self._clock = clock
        self._service_clock = service_clock
        self._protection = protection
        self._deployment = deployment
        self._notices = notices
        self._one_run = one_run
        self._has_its_run = False
        self._stopping = False
        self._waits = False
        self._next_clock_check = threads.monotonic() + _CLOCK_CHECK_SECONDS
        self._working: list[Future[list[D]]] = []

    def stop(self) -> bool:
        """Stop receiving, and hand back running runs.

        Returns:
            Whether `serve` is waiting and may be interrupted: if so, raise `StopWaiting` in its
            thread.
        """
        # A plain flag: a signal handler may interrupt the code that holds the lock of an Event.
        self._stopping = True
        waits, self._waits = self._waits, False  # the next call must not interrupt it again
        return waits

    def serve(self) -> None:
        """Receive and process messages until `stop` is called, the one run has ended or the process
        is replaced; then wait until all slots are done.
        """
        while not self._stopping and not self._is_over():
            self._serve_once()
        while self._prune():
            self._protection.keep(working=True)
            self._threads.wait(self._working, _SLOT_WAIT)
        self._acknowledger.close()
        self._protection.keep(working=False)

    def _is_over(self) -> bool:
        """Whether to receive nothing more."""
        working = self._prune()
        if self._has_its_run:
            return not working
        return working > 0 and self._deployment.is_replaced()

    def _serve_once(self) -> None:
        working = self._prune()
        self._protection.keep(working=working > 0)
        if not self._clock_is_right():
            self._pause()
            return
        # Only with a free slot: otherwise a message would wait here, hidden from other workers.
        free = 0 if self._has_its_run else self._threads.size - working
        if free == 0:
            self._threads.wait(self._working, _SLOT_WAIT)
            self._gather()
            return
        for group in self._receive(1 if self._one_run else min(free, _RECEIVE_AT_MOST)):
            self._has_its_run = self._one_run
            self._working.append(self._threads.slots.submit(self._carry_out, group))

    def _gather(self) -> None:
        """Wait a moment for more free slots, if one is free: a receive of several messages costs as
        much as a receive of one.
        """
        before = self._threads.size
        enough = before - max(before // _GATHERED_SHARE, 1)
        for _ in range(_GATHERS_FOR // _GATHERS_EVERY):
            busy = self._prune()
            if self._stopping or not enough < busy < before:
                return
            before = busy
            self._clock.sleep(_GATHERS_EVERY)

    def _carry_out(self, group: list[D]) -> list[D]:
        until = self._threads.monotonic() + (self._lease / _BEGINS_WITHIN).total_seconds()
        stay = self._batch.carry_out(
            group,
            stopping=self._is_stopping,
            may_begin=lambda: self._threads.monotonic() < until,
        )
        self._journal.release(stay)
        return stay

    def _prune(self) -> int:
        """The number of busy slots."""
        self._working = [work for work in self._working if not work.done()]
        return len(self._working)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _clock_is_right(self) -> bool:
        """Whether this machine's clock is accurate enough; unknown counts as yes."""
        if self._threads.monotonic() < self._next_clock_check:
            return True
        try:
            wrong = clock_fault(self._service_clock)
        except Exception:  # noqa: BLE001 — the service does not answer: the next receive reports it
            wrong = None
        if wrong is None:
            self._next_clock_check = self._threads.monotonic() + _CLOCK_CHECK_SECONDS
        else:
            self._notices.fail("receives nothing", wrong)
        return wrong is None

    def _receive(self, most: int) -> list[list[D]]:
        """Messages by group. The messages of one group are processed one after another."""
        idle = not self._prune()

        def receive() -> Sequence[D]:
            received = self._inbox.receive(
                most, wait=_LONG_POLL if idle else BUSY_POLL, hidden_for=self._lease
            )
            self._journal.hold(received)
            return received

        try:
            # Messages that arrived before an interruption are handed back by the slots.
            received = self._unless_stopped(receive, interruptible=idle)
        except Exception as error:  # noqa: BLE001 — the next call may succeed
            self._notices.warn("receiving failed", error)
            self._pause()
            return []
        groups: dict[str, list[D]] = defaultdict(list)
        for delivery in received or []:
            groups[delivery.group].append(delivery)
        return list(groups.values())

    def _pause(self) -> None:
        self._unless_stopped(lambda: self._clock.sleep(_RETRY_AFTER), interruptible=True)

    def _unless_stopped(self, wait: Callable[[], T], *, interruptible: bool) -> T | None:
        """The result of *wait*; None if `stop` was called before, or interrupted it."""
        found: T | None = None
        try:
            # The interruption may come at any moment, so an outer block catches it.
            try:
                self._waits = interruptible
                if not self._stopping:  # nothing would interrupt a wait that begins after `stop`
                    found = wait()
            finally:
                self._waits = False
        except StopWaiting:
            pass
        return found


def clock_fault(service_clock: ServiceClock) -> str | None:
    """What is wrong with this machine's clock and how to fix it; None if it is accurate enough.

    Raises:
        Exception: As for `ServiceClock.deviation`.
    """
    deviation = service_clock.deviation()
    if abs(deviation) <= _CLOCK_TOLERANCE:
        return None
    way = "ahead" if deviation > timedelta() else "behind"
    return (
        f"This machine's clock is {abs(deviation).total_seconds():.0f} s {way} of AWS's, more than "
        f"{_CLOCK_TOLERANCE.total_seconds():.0f} s: synchronise it (NTP)."
    )
