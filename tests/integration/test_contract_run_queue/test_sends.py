"""The contract of queues: dispatches are sent, merged and counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from nextfire.domain.message import decode_message
from tests.builders import a_message, at, run_key
from tests.integration.backends import DEDUP_OF_WHAT_WAS_DELETED, takes_minutes
from tests.integration.test_contract_run_queue.conftest import FIRST, SECOND, Held


def test_what_is_sent_is_received(held: Held) -> None:
    message = a_message(dispatch=3)

    assert held.send(message) == {0}

    (delivery,) = held.take(10)
    assert decode_message(delivery.body) == message


def test_nothing_is_sent_for_nothing(held: Held) -> None:
    assert held.queue.send([]) == set()
    assert held.receive() == []


def test_more_is_sent_than_one_request_holds(held: Held) -> None:
    messages = [a_message(run_key(at(f"12:{n:02d}"))) for n in range(25)]

    assert held.send(*messages) == set(range(25))

    received = [run for _ in range(3) for run in held.receive()]
    assert sorted(received) == [message.run_id for message in messages]


def test_a_pool_that_is_not_there_accepts_nothing(held: Held) -> None:
    messages = [("gone", a_message(FIRST)), ("default", a_message(SECOND))]

    assert held.queue.send(messages) == {1}
    assert held.receive() == [SECOND.run_id]


def test_a_dispatch_that_is_sent_again_is_accepted_and_merged(held: Held) -> None:
    assert held.send(a_message()) == {0}
    assert held.send(a_message(dispatched_at=at("12:04:59"))) == {0}

    assert len(held.take(10)) == 1
    assert held.queue.backlog("default") == 1


@takes_minutes
@pytest.mark.timeout(600)
def test_a_dispatch_is_merged_for_five_minutes(held: Held) -> None:
    held.send(a_message())
    held.time.sleep(timedelta(minutes=4, seconds=55))
    held.send(a_message())
    assert held.queue.backlog("default") == 1

    held.time.sleep(timedelta(seconds=10))
    held.send(a_message())
    assert held.queue.backlog("default") == 2


@DEDUP_OF_WHAT_WAS_DELETED.mark
def test_a_dispatch_is_merged_even_after_it_was_done(held: Held) -> None:
    held.send(a_message())
    held.pool.acknowledge(held.take(1)[0])

    assert held.send(a_message()) == {0}

    assert held.take(10) == []


def test_of_ten_that_send_a_dispatch_at_once_one_is_heard(held: Held) -> None:
    with ThreadPoolExecutor(10) as threads:
        sent = list(threads.map(lambda _: held.send(a_message()), range(10)))

    assert sent == [{0}] * 10
    assert held.queue.backlog("default") == 1


def test_another_dispatch_of_a_run_is_another_message(held: Held) -> None:
    held.send(a_message(dispatch=1), a_message(dispatch=1), a_message(dispatch=2))

    received = [decode_message(delivery.body).dispatch for delivery in held.take(10)]

    assert received == [1, 2]


def test_the_backlog_is_what_waits_and_what_is_in_flight(held: Held) -> None:
    assert held.queue.backlog("default") == 0
    held.send(*(a_message(run_key(at(f"12:{n:02d}"))) for n in range(12)))
    (delivery, *_) = held.take(10)

    assert held.queue.backlog("default") == 12
    held.pool.acknowledge(delivery)
    assert held.queue.backlog("default") == 11
    assert held.queue.backlog("nowhere") == 0
