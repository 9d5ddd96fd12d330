"""A worker that is to stop hands its runs back at once, whatever it does."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest

from functions.worker.worker import main
from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.run import RunState
from nextfire.usecases import serve_pool
from nextfire.usecases.serve_pool import ServePool, StopWaiting
from tests.integration.deployment import Deployment, Proxy
from tests.integration.worker.conftest import AT_MOST, counts, dispatch, serve, state, stopped_when


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


def test_a_worker_stopped_before_it_receives_does_not(system: Deployment) -> None:
    queues = Proxy(system.queues)

    serve(system, queues, lambda: False, kind=StoppedBeforeReceiving)

    assert "receive_message" not in [name for name, _ in queues.calls]


@pytest.mark.parametrize("trouble", [None, OSError("no network")], ids=str)
def test_a_worker_stopped_after_it_received_hands_back_at_once(
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


def test_main_thread_is_the_one_that_signals_reach() -> None:
    """The other tests rely on this."""
    seen: list[FrameType | None] = []
    before = signal.signal(signal.SIGUSR1, lambda _, frame: seen.append(frame))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(seen) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
