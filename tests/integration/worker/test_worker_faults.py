"""Failed calls, wrong clocks and undecodable messages do not end a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from functions.worker.worker import main
from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.run import RunState
from nextfire.usecases import serve_pool
from nextfire.wiring import worker_ports
from tests.integration.deployment import Deployment, Proxy
from tests.integration.worker.conftest import counts, dispatch, serve, state


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


def test_queue_that_cannot_be_used_is_reported_in_words(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, queue_url=system.queue_url.replace(".fifo", "-gone.fifo"))

    with pytest.raises(SystemExit, match=r"Cannot access the queue .*NonExistentQueue"):
        main(WorkerJournal())


@pytest.mark.parametrize("unanswered", [False, True])
def test_messages_after_an_unacknowledged_one_are_shown_again(
    system: Deployment, *, unanswered: bool
) -> None:
    system.upload("import time; time.sleep(60)")
    job = system.register()
    first, *others = [dispatch(system, job, n, "g") for n in range(3)]
    queues = Proxy(system.queues)

    def hide(real: Callable[..., Any], request: dict[str, Any]) -> Any:
        if unanswered and request["VisibilityTimeout"] == 0:
            receipts.append(request["ReceiptHandle"])
            if request["ReceiptHandle"] == receipts[0]:
                raise OSError("no network")
        return real(**request)

    receipts: list[str] = []
    queues.instead["change_message_visibility"] = hide

    serve(system, queues, lambda: state(system, first) is RunState.RUNNING)

    assert [state(system, each) for each in others] == [None, None]
    assert sum(counts(system)) == 3
    assert counts(system)[1] == unanswered, "the other messages are still tried"
