"""A worker receives messages, runs them in its slots, and acknowledges them."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from functions.worker.worker import main
from nextfire.adapters.sqs.run_queue import SqsDelivery, SqsInbox
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.run import Run, RunState
from tests.integration.deployment import Deployment, Proxy
from tests.integration.worker.conftest import Agent, counts, dispatch, serve, state, stopped_when


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


def test_task_is_protected_during_a_run(system: Deployment) -> None:
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
