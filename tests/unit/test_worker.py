"""How a worker handles the messages of one batch: messages of a group in order, and none after one
that was not acknowledged. The inbox is scripted; `tests/integration/worker` covers the
process itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from functions.worker.worker import stopper, threads
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.clocks import Clock
from nextfire.usecases.acknowledger import Acknowledger
from nextfire.usecases.handled import Disposition, Handled
from nextfire.usecases.message_batch import MessageBatch
from nextfire.usecases.serve_pool import ServePool
from nextfire.wiring.telemetry import WorkerTelemetry

DONE = Handled(Disposition.ACKNOWLEDGE, "done")


class Queue:
    """Delivers *messages* once, all in one group, and stops the worker when all are settled.

    It acts as inbox, SQS client, use case, service clock, task protection and deployment, which is
    replaced after the poll number `replaced_after`. `handled`: messages that were started;
    `listed`: content of the journal at those times; `hidden`: messages handed back; `done`:
    messages deleted; `asked`: number of messages asked for in each poll; `passed`: seconds that
    handlers let pass.
    """

    def __init__(self, *messages: str, slots: int = 4, one_run: bool = False) -> None:
        self.handled: list[str] = []
        self.hidden: list[str] = []
        self.done: list[str] = []
        self.asked: list[int] = []
        self.journal = WorkerJournal()
        self.listed: list[list[str]] = []
        self.kept: list[bool] = []
        self.replaced_after: int | None = None
        self.passed = 0.0
        self.ends: dict[str, Callable[[], Handled]] = {}
        self._messages = messages
        self._settled = threading.Semaphore(0)
        self._slots = slots
        self._one_run = one_run
        self._clock: Clock = SystemClock()
        self.pool: ServePool[SqsDelivery] | None = None

    def receive(self, most: int, **_: timedelta) -> list[SqsDelivery]:
        self.asked.append(most)
        here: Any = self
        if len(self.asked) == 1:
            return [SqsDelivery(here, "url", each, each, each, "g") for each in self._messages]
        for _each in self._messages:
            assert self._settled.acquire(timeout=20)
        self.stop()
        return []

    def stop(self) -> None:
        """Stop the worker like the signal handler does."""
        assert self.pool is not None
        stopper(self.pool)(0, None)

    def change_message_visibility(self, **request: Any) -> None:
        self.hidden.append(request["ReceiptHandle"])
        self._settled.release()

    def acknowledge(self, deliveries: list[SqsDelivery]) -> list[str]:
        self.done += [each.body for each in deliveries]
        return []

    def handle(self, delivery: SqsDelivery, **_: Any) -> Handled:
        self.handled.append(delivery.body)
        self.listed.append([each.message_id for each in self.journal.held()])
        try:
            return self.ends.get(delivery.body, lambda: DONE)()
        finally:
            self._settled.release()

    def keep(self, *, working: bool) -> None:
        self.kept.append(working)

    def is_replaced(self) -> bool:
        return len(self.asked) == self.replaced_after

    def serve(self) -> None:
        """Run a worker on this queue until it is stopped."""
        here: Any = self
        telemetry, clock = WorkerTelemetry(), SystemClock()
        with threads(self._slots) as its_threads:
            journal = self.journal
            acknowledger = Acknowledger(here, its_threads.background, clock, telemetry, journal)
            self.pool = ServePool(
                here,
                MessageBatch(here, telemetry, done=acknowledger.put),
                acknowledger,
                journal,
                lease=timedelta(seconds=60),
                threads=replace(its_threads, monotonic=lambda: self.passed),
                clock=self._clock,
                service_clock=here,
                protection=here,
                deployment=here,
                notices=telemetry,
                one_run=self._one_run,
            )
            self.pool.serve()


def test_messages_of_a_batch_run_in_order_and_none_is_handed_back() -> None:
    queue = Queue("a", "b", "c")

    queue.serve()

    assert queue.handled == ["a", "b", "c"]
    assert sorted(queue.done) == ["a", "b", "c"]
    assert queue.hidden == []


@pytest.mark.parametrize("raised", [UnavailableError("throttled"), ValueError("a defect")])
def test_messages_after_an_unacknowledged_one_are_handed_back(raised: Exception) -> None:
    def fail() -> Handled:
        raise raised

    queue = Queue("a", "b", "c", "d")
    queue.ends["b"] = fail

    queue.serve()

    assert queue.handled == ["a", "b"]
    assert queue.done == ["a"]
    again = ["b"] if isinstance(raised, UnavailableError) else []  # sooner than after a lease
    assert queue.hidden == [*again, "c", "d"]


def test_a_worker_stopped_in_a_run_hands_back_what_follows_and_not_what_is_done() -> None:
    def end() -> Handled:
        queue.stop()
        return DONE

    queue = Queue("a", "b", "c")
    queue.ends["a"] = end

    queue.serve()

    assert queue.handled == queue.done == ["a"]
    assert queue.hidden == ["b", "c"]


@pytest.mark.parametrize(
    ("seconds", "begun"), [(9, ["a", "b", "c", "d"]), (29, ["a", "b"]), (31, ["a"])]
)
def test_messages_whose_receipts_may_expire_in_their_runs_are_left_to_others(
    seconds: int, begun: list[str]
) -> None:
    """Their visibility timeout, a lease, began when the first of their group was received."""

    def last() -> Handled:
        queue.passed += seconds
        return DONE

    queue = Queue("a", "b", "c", "d")
    queue.ends = dict.fromkeys("abcd", last)

    queue.serve()

    assert queue.handled == queue.done == begun
    assert begun + queue.hidden == ["a", "b", "c", "d"], "visible at once"


def test_what_it_holds_is_listed_before_it_is_begun_and_until_it_is_done() -> None:
    def leave() -> Handled:
        return Handled(Disposition.LEAVE, "another worker has it")

    queue = Queue("a", "b", "c")
    queue.ends["b"] = leave

    queue.serve()

    assert queue.listed[0] == ["a", "b", "c"]
    assert (queue.done, queue.hidden) == (["a"], ["c"])
    assert queue.journal.held() == [], "neither deleted nor left messages are listed"


@pytest.mark.parametrize(("slots", "asked"), [(1, 1), (4, 4), (10, 10), (12, 10)])
def test_it_asks_for_as_many_as_there_are_free_slots_and_the_queue_gives(
    slots: int, asked: int
) -> None:
    queue = Queue(slots=slots)

    queue.serve()

    assert queue.asked[0] == asked


class Full(Queue):
    """Delivers as many messages as there are slots, each in its group. The first ends, and then one
    more each time that the worker sleeps, until *ends* have ended.
    """

    def __init__(self, slots: int, ends: int) -> None:
        super().__init__(*map(str, range(slots)), slots=slots)
        self._may_end = {each: threading.Event() for each in self._messages}
        self._clock = self
        self.ends = {each: partial(self._end, each) for each in self._messages}
        self.slept, self._ends = 0, ends

    def receive(self, most: int, **more: timedelta) -> list[SqsDelivery]:
        if self.asked:
            for event in self._may_end.values():
                event.set()
        return [replace(each, group=each.body) for each in super().receive(most, **more)]

    def keep(self, *, working: bool) -> None:
        super().keep(working=working)
        if working:
            self._may_end["0"].set()

    def now(self) -> datetime:
        return SystemClock().now()

    def sleep(self, _: timedelta) -> None:
        assert self.pool is not None
        self.slept += 1
        if self.slept >= self._ends:
            return
        busy = self.pool._prune()  # noqa: SLF001
        self._may_end[str(self.slept)].set()
        until = time.monotonic() + 20
        while self.pool._prune() == busy:  # noqa: SLF001
            assert time.monotonic() < until
            time.sleep(0.001)

    def _end(self, message: str) -> Handled:
        assert self._may_end[message].wait(20)
        return DONE


@pytest.mark.parametrize(
    ("slots", "ends", "asked"),
    [(16, 16, 4), (8, 8, 2), (4, 4, 1), (1, 1, 1), (16, 1, 1), (16, 2, 2)],
)
def test_after_all_slots_were_taken_it_asks_for_several_messages(
    slots: int, ends: int, asked: int
) -> None:
    queue = Full(slots, ends)

    queue.serve()

    assert queue.asked == [min(slots, 10), asked]
    # It does not wait any longer once a pause has freed no further slot.
    assert queue.slept == (ends if asked == ends < slots else asked - 1)


@pytest.mark.parametrize("end", ["done", "stays"])
def test_for_one_run_it_asks_for_one_message_and_never_again(end: str) -> None:
    def fail() -> Handled:
        raise UnavailableError("throttled")

    queue = Queue("a", one_run=True)
    queue.ends["a"] = fail if end == "stays" else lambda: DONE

    queue.serve()

    assert queue.asked == [1]
    assert queue.handled == ["a"]
    assert queue.done == (["a"] if end == "done" else [])


def test_for_one_run_its_task_stays_protected_until_the_run_has_ended() -> None:
    protected = threading.Event()

    class Protected(Queue):
        def keep(self, *, working: bool) -> None:
            super().keep(working=working)
            if working:
                protected.set()

    def end() -> Handled:
        assert protected.wait(20)
        return DONE

    queue = Protected("a", one_run=True)
    queue.ends["a"] = end

    queue.serve()

    assert queue.done == ["a"]
    assert queue.asked == [1]
    assert queue.kept[-1] is False


def test_a_busy_worker_that_is_replaced_ends_when_its_runs_have_ended() -> None:
    """ECS does not stop it while it is protected, and in a pool with a backlog it always is."""
    queue = Queue("a", "b")
    queue.replaced_after = 1
    goes_on = threading.Event()
    queue.ends["a"] = lambda: DONE if goes_on.wait(20) else pytest.fail("ended too early")
    threading.Timer(0.2, goes_on.set).start()

    queue.serve()

    assert queue.asked == [4]
    assert sorted(queue.done) == ["a", "b"]
    assert (queue.hidden, queue.kept[-2:]) == ([], [True, False])


def test_an_idle_worker_does_not_ask_whether_it_is_replaced() -> None:
    """ECS can stop it at any time."""
    queue = Queue()
    queue.replaced_after = 1

    queue.serve()

    assert queue.asked == [4, 4]
