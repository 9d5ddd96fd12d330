"""The worker process on moto, in the main thread, and stopped by a signal as in production."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.utils import format_datetime
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from functions.worker.worker import main, stopper, threads
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.aws.service_clock import SqsServiceClock
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.adapters.worker.task_protection import EcsTaskProtection
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.instants import floor_minute
from nextfire.domain.job import Job
from nextfire.domain.message import RunMessage
from nextfire.domain.run import Run, RunState
from nextfire.settings import ExecutorSettings
from nextfire.usecases import serve_pool
from nextfire.usecases.serve_pool import ServePool, StopWaiting
from nextfire.wiring import worker as wiring
from nextfire.wiring import worker_ports
from nextfire.wiring.execution import executor_config, executor_ports
from nextfire.wiring.telemetry import WorkerTelemetry
from nextfire.wiring.worker import WorkerPorts, build_worker
from tests.integration.deployment import Deployment, Proxy, message_for

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
            executor=executor_ports(settings, WorkerTelemetry("worker")),
            inbox=SqsInbox(queues, queue_url=system.queue_url),
            journal=WorkerJournal(),
            service_clock=SqsServiceClock(queues, SystemClock(), queue_url=system.queue_url),
            protection=agent or Agent(),
            threads=its_threads,
        )
        pool = build_worker(ports, executor_config(settings, worker="w"), WorkerTelemetry("worker"))
        with stopped_when(until):
            signal.signal(signal.SIGTERM, stopper(pool))
            pool.serve()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_process_receives_runs_and_acknowledges(system: Deployment, stop: signal.Signals) -> None:
    system.upload("import sys; print(sys.stdin.read())")
    job = system.register(payload={"n": 1})
    messages = [dispatch(system, job, minutes) for minutes in range(6)]

    with stopped_when(lambda: counts(system) == (0, 0), stop):
        main(WorkerJournal())

    for message in messages:
        run = system.run(message)
        assert (run.state, run.attempt, run.stdout) == (RunState.SUCCEEDED, 1, '{"n": 1}\n')
        assert run.worker == f"{socket.gethostname()}-{os.getpid()}"


@pytest.mark.parametrize("source", ["print('done')", "raise SystemExit(1)"])
def test_isolated_process_ends_after_one_run_and_leaves_the_next_in_the_queue(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("NEXTFIRE_ISOLATION", "task")
    system.upload(source)
    job = system.register()
    messages = [dispatch(system, job, minutes) for minutes in range(2)]

    # The signal comes only if the process does not end by itself; it would have run both by then.
    with stopped_when(lambda: False):
        main(WorkerJournal())

    begun = [message for message in messages if system.runs.get(message.key) is not None]
    assert len(begun) == 1
    assert len(system.run(begun[0]).attempts) == 1
    # A failed run's retry is a due entry, not a message.
    assert counts(system) == (1, 0)


def test_stop_hands_the_run_back_at_once(system: Deployment) -> None:
    system.upload("import time; time.sleep(60)")
    message = dispatch(system, system.register())
    begun = time.monotonic()

    serve(system, system.queues, lambda: state(system, message) is RunState.RUNNING)

    assert time.monotonic() - begun < AT_MOST / 2
    run = system.run(message)
    assert (run.state, run.attempt, run.dispatch) == (RunState.PENDING, 0, 1)
    assert [attempt.outcome for attempt in run.attempts] == [AttemptOutcome.HANDED_BACK]
    assert counts(system) == (1, 0)

    system.upload("print('second try')")
    serve(system, system.queues, lambda: state(system, message) is RunState.SUCCEEDED)

    run = system.run(message)
    assert (run.attempt, [attempt.number for attempt in run.attempts]) == (1, [1, 1])


def test_stop_ends_a_long_poll(system: Deployment) -> None:
    queues = Proxy(system.queues)
    polling = threading.Event()

    def nothing_comes(_real: object, _request: object) -> None:
        polling.set()
        time.sleep(AT_MOST)

    queues.instead["receive_message"] = nothing_comes
    begun = time.monotonic()

    serve(system, queues, polling.is_set)

    assert time.monotonic() - begun < AT_MOST / 2


def test_a_poll_during_a_run_is_short_and_is_awaited(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were aborted, it would continue on the queue and take the handed-back messages."""
    system.upload("import time; time.sleep(60)")
    message = dispatch(system, system.register())
    receive = SqsInbox.receive
    waits: list[timedelta] = []
    polled = threading.Event()
    came_back: list[bool] = []

    def watched(
        inbox: SqsInbox, most: int, *, wait: timedelta, hidden_for: timedelta
    ) -> list[SqsDelivery]:
        waits.append(wait)
        if len(waits) > 1 and state(system, message) is RunState.RUNNING:
            polled.set()
            time.sleep(0.5)  # the signal arrives during this time
            came_back.append(True)
        return receive(inbox, most, wait=wait, hidden_for=hidden_for)

    monkeypatch.setattr(SqsInbox, "receive", watched)

    serve(system, system.queues, polled.is_set)

    assert (waits[0], waits[-1]) == (timedelta(seconds=20), timedelta(seconds=2))
    assert came_back, "the poll was not aborted"
    assert (state(system, message), counts(system)) == (RunState.PENDING, (1, 0))


def test_stop_ends_the_wait_after_trouble(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_pool, "_RETRY_AFTER", timedelta(seconds=AT_MOST))
    queues = Proxy(system.queues)
    failed_at: list[float] = []

    def fail(_real: object, _request: object) -> None:
        failed_at.append(time.monotonic())
        raise OSError("no network")

    queues.instead["receive_message"] = fail
    begun = time.monotonic()

    serve(system, queues, lambda: bool(failed_at) and time.monotonic() - failed_at[0] > 0.2)

    assert time.monotonic() - begun < AT_MOST / 2
    assert len(failed_at) == 1


def test_failing_receive_does_not_end_it(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_pool, "_RETRY_AFTER", timedelta(milliseconds=10))
    system.upload("")
    message = dispatch(system, system.register())
    queues = Proxy(system.queues)
    failures = iter([OSError("no network"), ValueError("a defect"), RuntimeError("another")])

    def fail(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        error = next(failures, None)
        if error is not None:
            raise error
        return real(**request)

    queues.instead["receive_message"] = fail

    serve(system, queues, lambda: state(system, message) is RunState.SUCCEEDED)

    assert state(system, message) is RunState.SUCCEEDED
    assert next(failures, None) is None


def test_a_failed_message_stays_and_the_others_continue(system: Deployment) -> None:
    system.upload("")
    job = system.register()
    bad, good = dispatch(system, job, 1), dispatch(system, job)
    queues = Proxy(system.queues)

    def fail(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if state(system, bad) is RunState.SUCCEEDED and not failed.is_set():
            failed.set()
            raise RuntimeError("a defect")
        return real(**request)

    failed = threading.Event()
    queues.instead["delete_message_batch"] = fail

    serve(
        system,
        queues,
        lambda: failed.is_set() and state(system, good) is RunState.SUCCEEDED,
    )

    assert {state(system, bad), state(system, good)} == {RunState.SUCCEEDED}
    assert sum(counts(system)) >= 1, "unacknowledged messages stay"


def test_messages_that_are_done_together_are_deleted_together(system: Deployment) -> None:
    system.upload("")
    job = system.register()
    messages = [dispatch(system, job, n) for n in range(12)]
    queues = Proxy(system.queues)
    deleted: list[int] = []

    def count(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        deleted.append(len(request["Entries"]))
        return real(**request)

    queues.instead["delete_message_batch"] = count

    serve(
        system,
        queues,
        lambda: all(state(system, each) is RunState.SUCCEEDED for each in messages),
    )

    assert (sum(deleted), counts(system)) == (12, (0, 0)), "including the last messages"
    assert max(deleted) <= 10
    assert len(deleted) < 12


def test_undecodable_message_goes_to_the_dead_letters(system: Deployment) -> None:
    system.send("rubbish", group="g", dedup="d")

    serve(system, system.queues, lambda: counts(system) == (0, 0))

    [letter] = system.receive(url=system.dlq_url)
    assert letter["Body"] == "rubbish"
    assert counts(system) == (0, 0), "acknowledged"


def answering(shift: timedelta) -> Callable[..., Any]:
    """Answer get_queue_attributes like a service whose clock is *shift* ahead of ours."""

    def answer(_real: object, _request: object) -> dict[str, Any]:
        date = SystemClock().now() + shift
        return {"ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(date)}}}

    return answer


def test_process_with_a_wrong_clock_does_not_begin(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = Proxy(system.queues)
    queues.instead["get_queue_attributes"] = answering(-timedelta(hours=1))
    monkeypatch.setattr(worker_ports, "sqs", lambda **_: queues)

    with pytest.raises(SystemExit, match=r"clock is 3\d\d\d s ahead of AWS's"):
        main(WorkerJournal())


def test_nothing_is_received_while_the_clock_is_wrong(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_pool, "_CLOCK_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(serve_pool, "_RETRY_AFTER", timedelta(milliseconds=10))
    system.upload("")
    message = dispatch(system, system.register())
    queues = Proxy(system.queues)
    found: list[tuple[int, RunState | None]] = []

    def late_at_first(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        found.append((counts(system)[0], state(system, message)))
        shift = timedelta(hours=len(found) < 3)
        return answering(shift)(real, request)

    queues.instead["get_queue_attributes"] = late_at_first

    serve(system, queues, lambda: state(system, message) is RunState.SUCCEEDED)

    assert found[:3] == [(1, None)] * 3, (
        "nothing is claimed until the third check finds the clock right"
    )
    assert state(system, message) is RunState.SUCCEEDED


def test_queue_that_cannot_be_used_is_told_in_words(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, queue_url=system.queue_url.replace(".fifo", "-gone.fifo"))

    with pytest.raises(SystemExit, match=r"Cannot access the queue .*NonExistentQueue"):
        main(WorkerJournal())


def test_task_is_protected_while_a_run_is_at_work(system: Deployment) -> None:
    system.upload("")
    message = dispatch(system, system.register())
    agent = Agent()

    serve(
        system,
        system.queues,
        lambda: state(system, message) is RunState.SUCCEEDED and agent.reported[-1:] == [False],
        agent,
    )

    assert agent.reported == [False, True, False]


def overlap(one: Run, other: Run) -> bool:
    assert one.started_at is not None
    assert other.started_at is not None
    assert one.finished_at is not None
    assert other.finished_at is not None
    return one.started_at < other.finished_at and other.started_at < one.finished_at


@pytest.mark.parametrize(("groups", "together"), [(["g", "h"], True), (["g", "g"], False)])
def test_groups_run_side_by_side_and_the_messages_of_one_in_turn(
    system: Deployment, groups: list[str], *, together: bool
) -> None:
    system.upload("import time; time.sleep(0.5)")
    job = system.register()
    messages = [dispatch(system, job, n, group) for n, group in enumerate(groups)]

    serve(system, system.queues, lambda: counts(system) == (0, 0))

    one, other = (system.run(message) for message in messages)
    assert {one.state, other.state} == {RunState.SUCCEEDED}
    assert overlap(one, other) is together


def test_no_more_runs_than_slots(system: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    system.configure(monkeypatch, slots="1")
    system.upload("import time; time.sleep(0.2)")
    job = system.register()
    messages = [dispatch(system, job, n) for n in range(3)]

    serve(system, system.queues, lambda: counts(system) == (0, 0))

    runs = sorted(
        (system.run(message) for message in messages), key=lambda run: str(run.started_at)
    )
    assert not any(overlap(a, b) for a, b in pairwise(runs))


class StoppedBeforeReceiving(ServePool[SqsDelivery]):
    """Receives the stop signal just before it reports that it waits."""

    _held = False

    @property
    def _waits(self) -> bool:
        return self._held

    @_waits.setter
    def _waits(self, value: bool) -> None:
        if value and not self._stopping:
            self._signal()
        self._held = value

    def _signal(self) -> None:
        if self.stop():
            raise StopWaiting


class StoppedAfterReceiving(StoppedBeforeReceiving):
    """Receives the stop signal just before it reports that it no longer waits."""

    @property
    def _waits(self) -> bool:
        return self._held

    @_waits.setter
    def _waits(self, value: bool) -> None:
        if self._held and not value and not self._stopping:
            self._signal()
        self._held = value


def test_told_to_stop_before_it_receives_it_does_not(system: Deployment) -> None:
    queues = Proxy(system.queues)

    serve(system, queues, lambda: False, kind=StoppedBeforeReceiving)

    assert "receive_message" not in [name for name, _ in queues.calls]


@pytest.mark.parametrize("trouble", [None, OSError("no network")], ids=str)
def test_told_to_stop_when_it_has_received_it_hands_back_at_once(
    system: Deployment, trouble: Exception | None
) -> None:
    system.upload("")
    message = dispatch(system, system.register())
    queues = Proxy(system.queues)

    def receive(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if trouble is not None:
            raise trouble
        return real(**request)

    queues.instead["receive_message"] = receive

    serve(system, queues, lambda: False, kind=StoppedAfterReceiving)

    assert state(system, message) is None, "not started"
    assert counts(system) == (1, 0)


@pytest.mark.parametrize("unanswered", [False, True])
def test_messages_after_an_unacknowledged_one_are_shown_again(
    system: Deployment, *, unanswered: bool
) -> None:
    system.upload("import time; time.sleep(60)")
    job = system.register()
    first, *others = [dispatch(system, job, n, "g") for n in range(3)]
    queues = Proxy(system.queues)

    def hide(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if unanswered and request["VisibilityTimeout"] == 0 and not failed:
            failed.append(True)
            raise OSError("no network")
        return real(**request)

    failed: list[bool] = []
    queues.instead["change_message_visibility"] = hide

    serve(system, queues, lambda: state(system, first) is RunState.RUNNING)

    assert [state(system, each) for each in others] == [None, None]
    assert sum(counts(system)) == 3
    assert counts(system)[1] == unanswered, "the other messages are still tried"


def test_main_thread_is_the_one_that_signals_reach() -> None:
    """The other tests rely on this."""
    seen: list[FrameType | None] = []
    before = signal.signal(signal.SIGUSR1, lambda _, frame: seen.append(frame))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(seen) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
