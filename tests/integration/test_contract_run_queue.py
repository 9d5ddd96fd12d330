"""What `RunQueue`, `Delivery` and `DeadLetters` promise, on the fakes and on SQS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import time_machine

from nextfire.adapters.aws import sqs as sqs_client
from nextfire.adapters.run_queue import SqsDeadLetters, SqsInbox, SqsRunQueue
from nextfire.domain.ids import RunKey
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports import DeadLetters, Delivery, RunQueue
from tests.builders import LEASE, NOON, a_message, at, run_key
from tests.fakes import Clock, InlineExecutor, MemoryDeadLetters, MemoryRunQueue


@dataclass(frozen=True, slots=True)
class Held:
    """The queue of the pool `default`, its dead letters, and their clock."""

    queue: RunQueue
    dead_letters: DeadLetters
    advance: Callable[[timedelta], object]
    take: Callable[[int], Sequence[Delivery]]
    letters: Callable[[], Sequence[tuple[str, str]]]
    acknowledge: Callable[[Any], object]

    def send(self, *messages: RunMessage) -> set[int]:
        return self.queue.send([("default", message) for message in messages])

    def receive(self) -> list[str]:
        """What is visible, hidden for a lease from now on."""
        return [decode_message(delivery.body).run_id for delivery in self.take(10)]


@pytest.fixture(params=["memory", "sqs"])
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    if request.param == "memory":
        clock = Clock(NOON)
        queue, letters = MemoryRunQueue(clock), MemoryDeadLetters(clock)
        fifo = queue.queues["default"]
        yield Held(
            queue,
            letters,
            clock.advance,
            lambda most: fifo.receive(most, hidden_for=LEASE),
            lambda: letters.letters,
            lambda delivery: delivery.acknowledge(),
        )
        return
    with time_machine.travel(NOON, tick=False) as traveller:
        url, dlq = request.getfixturevalue("queue_url"), request.getfixturevalue("dlq_url")
        client = sqs_client()
        inbox = SqsInbox(client, queue_url=url)

        def letters_there() -> list[tuple[str, str]]:
            answer = client.receive_message(
                QueueUrl=dlq, MaxNumberOfMessages=10, MessageAttributeNames=["failure"]
            )
            return [
                (message["Body"], message["MessageAttributes"]["failure"]["StringValue"])
                for message in answer.get("Messages", [])
            ]

        yield Held(
            SqsRunQueue(client, queues={"default": url}, executor=InlineExecutor()),
            SqsDeadLetters(client, queue_url=dlq),
            traveller.shift,
            lambda most: inbox.receive(most, wait=timedelta(), hidden_for=LEASE),
            letters_there,
            lambda delivery: inbox.acknowledge([delivery]),
        )


FIRST, SECOND, THIRD = run_key(), run_key(at("13:00")), run_key(at("14:00"))
MOMENT = timedelta(milliseconds=100)


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


def test_a_dispatch_sent_again_within_five_minutes_is_accepted_and_merged(held: Held) -> None:
    assert held.send(a_message()) == {0}
    held.advance(timedelta(minutes=4, seconds=59))
    assert held.send(a_message(dispatched_at=at("12:04:59"))) == {0}

    assert len(held.take(10)) == 1
    held.advance(2 * LEASE)
    assert len(held.take(10)) == 1


def test_a_dispatch_is_merged_even_after_it_was_done() -> None:
    """On the fake alone: moto forgets what was deleted, SQS does not."""
    queue = MemoryRunQueue(Clock(NOON))
    queue.send([("default", a_message())])
    (delivery,) = queue.queues["default"].receive(1, hidden_for=LEASE)
    delivery.acknowledge()

    assert queue.send([("default", a_message())]) == {0}

    assert len(queue.queues["default"]) == 0


def test_another_dispatch_of_a_run_is_another_message(held: Held) -> None:
    held.send(a_message(dispatch=1), a_message(dispatch=1), a_message(dispatch=2))

    received = [decode_message(delivery.body).dispatch for delivery in held.take(10)]

    assert received == [1, 2]


def test_a_message_is_hidden_until_its_time_is_up(held: Held) -> None:
    held.send(a_message())
    held.take(1)

    held.advance(LEASE - MOMENT)
    assert held.receive() == []
    held.advance(2 * MOMENT)
    assert held.receive() == [FIRST.run_id]


def test_a_message_may_be_hidden_for_longer(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)
    held.advance(timedelta(seconds=50))

    delivery.hide(LEASE)

    held.advance(LEASE - MOMENT)
    assert held.receive() == []
    held.advance(2 * MOMENT)
    assert held.receive() == [FIRST.run_id]


def test_a_message_may_be_given_back_at_once(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)

    delivery.hide(timedelta())

    held.advance(MOMENT)
    assert held.receive() == [FIRST.run_id]


def test_an_acknowledged_message_is_gone(held: Held) -> None:
    held.send(a_message())
    held.acknowledge(held.take(1)[0])

    held.advance(2 * LEASE)
    assert held.receive() == []


def test_a_run_s_next_message_waits_behind_the_one_in_flight(held: Held) -> None:
    held.send(a_message(FIRST, dispatch=1))
    (delivery,) = held.take(1)
    held.send(a_message(FIRST, dispatch=2), a_message(SECOND))

    assert held.receive() == [SECOND.run_id]

    held.acknowledge(delivery)
    assert held.receive() == [FIRST.run_id]


def exclusive(key: RunKey, dispatch: int = 1) -> RunMessage:
    return a_message(key, dispatch=dispatch).model_copy(update={"exclusive": True})


def test_exclusive_runs_of_a_job_wait_for_each_other(held: Held) -> None:
    others = [run_key(job_id="report2"), run_key(tenant="other"), run_key(uid="uid00002")]
    held.send(exclusive(FIRST), exclusive(SECOND), *map(exclusive, others))

    taken = held.take(10)
    received = [decode_message(delivery.body) for delivery in taken]

    # A receive may bring several of one group; whoever took them has them in order.
    of_job = [m.run_id for m in received if m.key in (FIRST, SECOND)]
    assert of_job in ([FIRST.run_id], [FIRST.run_id, SECOND.run_id])
    assert {m.key for m in received} >= set(others), "jobs, tenants and creations share none"
    assert held.receive() == []


def test_the_second_exclusive_run_is_not_received_while_the_first_is_in_flight(
    held: Held,
) -> None:
    held.send(exclusive(FIRST))
    (delivery,) = held.take(1)
    held.send(exclusive(SECOND), a_message(THIRD))

    assert held.receive() == [THIRD.run_id], "one that is not exclusive has its own group"

    held.acknowledge(delivery)
    assert held.receive() == [SECOND.run_id]


def test_exclusive_messages_are_merged_by_run_and_dispatch(held: Held) -> None:
    held.send(exclusive(FIRST), exclusive(SECOND), exclusive(FIRST), exclusive(FIRST, 2))

    seen = []
    while taken := held.take(1):
        message = decode_message(taken[0].body)
        seen.append((message.run_id, message.dispatch, message.exclusive))
        held.acknowledge(taken[0])

    assert seen == [(FIRST.run_id, 1, True), (SECOND.run_id, 1, True), (FIRST.run_id, 2, True)]


def test_the_backlog_is_what_waits_and_what_is_in_flight(held: Held) -> None:
    assert held.queue.backlog("default") == 0
    held.send(*(a_message(run_key(at(f"12:{n:02d}"))) for n in range(12)))
    (delivery, *_) = held.take(10)

    assert held.queue.backlog("default") == 12
    held.acknowledge(delivery)
    assert held.queue.backlog("default") == 11
    assert held.queue.backlog("nowhere") == 0


def test_what_is_no_longer_ours_is_not_hidden(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)
    held.acknowledge(delivery)

    delivery.hide(LEASE)

    assert held.receive() == []


def test_a_dead_letter_is_kept_with_its_failure(held: Held) -> None:
    held.dead_letters.put("garbage", "not a run message", dedup="a")
    held.dead_letters.put("silence", "", dedup="b")
    held.dead_letters.put("long", "x" * 5000, dedup="c")

    assert sorted(held.letters()) == [
        ("garbage", "not a run message"),
        ("long", "x" * 1000),
        ("silence", "-"),
    ]


def test_a_dead_letter_is_kept_once(held: Held) -> None:
    held.dead_letters.put("garbage", "one", dedup="a")
    held.dead_letters.put("garbage", "two", dedup="a")

    assert held.letters() == [("garbage", "one")]


def test_a_failure_has_no_character_that_sqs_refuses() -> None:
    """On the adapter alone: moto takes what SQS refuses."""
    sent: list[Any] = []

    class Client:
        def send_message(self, **request: object) -> None:
            sent.append(request["MessageAttributes"])

    letters = SqsDeadLetters(Client(), queue_url="dlq")  # type: ignore[arg-type]
    letters.put("body", "a\x1b.zip\t\n ü 🙂 \ufffe\x00", dedup="d")

    assert [each["failure"]["StringValue"] for each in sent] == ["a?.zip\t\n ü 🙂 ??"]
