"""The contract of `RunQueue`, `Delivery` and `DeadLetters`: on fakes, SQLite, emulators of SQS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import pytest
import time_machine

from nextfire.adapters.aws.clients import SystemClock
from nextfire.adapters.aws.clients import sqs as sqs_client
from nextfire.adapters.sqlite.run_queue import SqliteDeadLetters, SqliteInbox, SqliteRunQueue
from nextfire.adapters.sqs.run_queue import SqsDeadLetters, SqsInbox, SqsRunQueue
from nextfire.domain.ids import RunKey
from nextfire.domain.message import RunMessage, decode_message
from nextfire.domain.ports.queues import DeadLetters, Delivery, RunQueue
from tests.builders import LEASE, NOON, a_message, at, run_key
from tests.fakes import (
    Clock,
    InlineExecutor,
    MemoryDeadLetters,
    MemoryDelivery,
    MemoryRunQueue,
    show,
)
from tests.integration.backends import (
    DEDUP_OF_WHAT_WAS_DELETED,
    EXPIRED_RECEIPTS_MINISTACK,
    EXPIRED_RECEIPTS_MOTO,
    GROUP_SCOPED_DEDUP,
    MEMORY,
    MOTO,
    ORDER_OF_WHAT_IS_SHOWN,
    RECEIPTS_OF_BEFORE,
    SQLITE,
    SQS,
    takes_minutes,
)

CONTRACT_OF = (RunQueue, Delivery, DeadLetters)
MOMENT = timedelta(milliseconds=100)


class Time(Protocol):
    """The passing of time for a queue."""

    def now(self) -> datetime: ...

    def sleep(self, duration: timedelta) -> None: ...


class Pool(Protocol):
    """A pool's queue and dead letters, as its executor and an operator see them."""

    def take(self, most: int, hidden_for: timedelta) -> Sequence[Delivery]: ...

    def acknowledge(self, delivery: Any) -> object: ...

    def show(self, deliveries: Sequence[Any]) -> list[str]: ...

    def letters(self) -> Sequence[tuple[str, str]]: ...


@dataclass(frozen=True, slots=True)
class Held:
    """The queue of the pool `default`, its dead letters, and their clock.

    `brief` is the longest duration that a test can wait.
    """

    queue: RunQueue
    dead_letters: DeadLetters
    pool: Pool
    time: Time
    brief: timedelta

    def send(self, *messages: RunMessage) -> set[int]:
        return self.queue.send([("default", message) for message in messages])

    def take(self, most: int, hidden_for: timedelta = LEASE) -> Sequence[Delivery]:
        return self.pool.take(most, hidden_for)

    def receive(self) -> list[str]:
        """The visible messages; the receive hides them for a lease."""
        return [decode_message(delivery.body).run_id for delivery in self.take(10)]

    def comes_back(self, *run_ids: str, not_before: datetime) -> bool:
        """Whether *run_ids* are received next, at *not_before* or as soon afterwards as possible.
        Moves the clock.
        """
        while not (received := self.receive()):
            assert self.time.now() < not_before + LEASE
            self.time.sleep(self.brief / 10)
        late = isinstance(self.time, SystemClock) or self.time.now() < not_before + self.brief / 5
        return received == [*run_ids] and self.time.now() >= not_before and late


class MemoryPool:
    def __init__(self, queue: MemoryRunQueue, letters: MemoryDeadLetters) -> None:
        self._fifo, self._letters = queue.queues["default"], letters

    def take(self, most: int, hidden_for: timedelta) -> Sequence[MemoryDelivery]:
        return self._fifo.receive(most, hidden_for=hidden_for)

    def acknowledge(self, delivery: Any) -> None:
        delivery.acknowledge()

    def show(self, deliveries: Sequence[Any]) -> list[str]:
        return show(deliveries)

    def letters(self) -> Sequence[tuple[str, str]]:
        return self._letters.letters


class SqsPool:
    def __init__(self, client: Any, url: str, dlq_url: str) -> None:
        self._client, self._dlq_url = client, dlq_url
        self._inbox = SqsInbox(client, queue_url=url)

    def take(self, most: int, hidden_for: timedelta) -> Sequence[Delivery]:
        return self._inbox.receive(most, wait=timedelta(), hidden_for=hidden_for)

    def acknowledge(self, delivery: Any) -> None:
        self._inbox.acknowledge([delivery])

    def show(self, deliveries: Sequence[Any]) -> list[str]:
        return self._inbox.show(deliveries)

    def letters(self) -> Sequence[tuple[str, str]]:
        answer = self._client.receive_message(
            QueueUrl=self._dlq_url, MaxNumberOfMessages=10, MessageAttributeNames=["failure"]
        )
        return [
            (message["Body"], message["MessageAttributes"]["failure"]["StringValue"])
            for message in answer.get("Messages", [])
        ]


class SqlitePool:
    def __init__(self, inbox: SqliteInbox, letters: SqliteDeadLetters) -> None:
        self._inbox, self._letters = inbox, letters

    def take(self, most: int, hidden_for: timedelta) -> Sequence[Delivery]:
        return self._inbox.receive(most, wait=timedelta(), hidden_for=hidden_for)

    def acknowledge(self, delivery: Any) -> None:
        self._inbox.acknowledge([delivery])

    def show(self, deliveries: Sequence[Any]) -> list[str]:
        return self._inbox.show(deliveries)

    def letters(self) -> Sequence[tuple[str, str]]:
        return self._letters.list()


class Travel:
    """Moves the machine's clock."""

    def __init__(self, traveller: time_machine.Traveller) -> None:
        self._traveller = traveller

    def now(self) -> datetime:
        return SystemClock().now()

    def sleep(self, duration: timedelta) -> None:
        self._traveller.shift(duration)


@pytest.fixture(params=(MEMORY, SQLITE, *SQS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def held(backend: str, request: pytest.FixtureRequest) -> Iterator[Held]:
    if backend == MEMORY:
        clock = Clock(NOON)
        queue, letters = MemoryRunQueue(clock), MemoryDeadLetters(clock)
        yield Held(queue, letters, MemoryPool(queue, letters), clock, LEASE)
        return
    if backend == SQLITE:
        clock, database = Clock(NOON), request.getfixturevalue("database")
        inbox = SqliteInbox(database, clock=clock, pool="default")
        dead = SqliteDeadLetters(database, clock=clock, pool="default")
        yield Held(
            SqliteRunQueue(database, clock=clock, pools=["default"]),
            dead,
            SqlitePool(inbox, dead),
            clock,
            LEASE,
        )
        return
    with ExitStack() as stack:
        time: Time = SystemClock()
        if backend == MOTO:
            time = Travel(stack.enter_context(time_machine.travel(NOON, tick=False)))
        url, dlq_url = request.getfixturevalue("queue_url"), request.getfixturevalue("dlq_url")
        client = sqs_client()
        yield Held(
            SqsRunQueue(client, queues={"default": url}, executor=InlineExecutor()),
            SqsDeadLetters(client, queue_url=dlq_url),
            SqsPool(client, url, dlq_url),
            time,
            LEASE if backend == MOTO else timedelta(seconds=1),
        )


FIRST, SECOND, THIRD = run_key(), run_key(at("13:00")), run_key(at("14:00"))


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


def test_of_ten_that_receive_at_once_one_has_the_message(held: Held) -> None:
    held.send(a_message(dispatch=1), a_message(dispatch=2))

    with ThreadPoolExecutor(10) as threads:
        taken = [each for some in threads.map(lambda _: held.take(1), range(10)) for each in some]

    assert [decode_message(delivery.body).dispatch for delivery in taken] == [1]


def test_another_dispatch_of_a_run_is_another_message(held: Held) -> None:
    held.send(a_message(dispatch=1), a_message(dispatch=1), a_message(dispatch=2))

    received = [decode_message(delivery.body).dispatch for delivery in held.take(10)]

    assert received == [1, 2]


def test_a_message_is_hidden_until_its_time_is_up(held: Held) -> None:
    held.send(a_message())
    began_at = held.time.now()
    held.take(1, held.brief)

    assert held.comes_back(FIRST.run_id, not_before=began_at + held.brief)


def test_a_message_may_be_hidden_for_longer(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1, 3 * held.brief)
    began_at = held.time.now()

    delivery.hide(4 * held.brief)

    assert held.comes_back(FIRST.run_id, not_before=began_at + 4 * held.brief)


def test_a_message_may_be_hidden_for_less(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1, 100 * held.brief)
    began_at = held.time.now()

    delivery.hide(held.brief)

    assert held.comes_back(FIRST.run_id, not_before=began_at + held.brief)


@pytest.mark.parametrize("hours", [1, 12])
def test_a_message_may_be_hidden_for_hours(held: Held, hours: int) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)

    delivery.hide(timedelta(hours=hours))

    assert held.receive() == []


@ORDER_OF_WHAT_IS_SHOWN.mark
def test_messages_of_a_group_that_are_shown_together_come_again_in_their_order(held: Held) -> None:
    alone = {"exclusive": True}
    exclusive = [a_message(key).model_copy(update=alone) for key in (FIRST, SECOND, THIRD)]
    held.send(*exclusive)
    taken = held.take(3)
    assert len(taken) == len(exclusive)

    assert held.pool.show(taken) == []

    run_ids = [message.run_id for message in exclusive]
    assert held.comes_back(*run_ids, not_before=held.time.now())


def test_each_delivery_of_a_message_has_a_new_token(held: Held) -> None:
    held.send(a_message())
    (first,) = held.take(1)
    held.pool.show([first])
    held.time.sleep(MOMENT)
    (second,) = held.take(1)

    assert first.token != second.token


def test_a_message_may_be_given_back_at_once(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)

    delivery.hide(timedelta())

    assert held.comes_back(FIRST.run_id, not_before=held.time.now())


@RECEIPTS_OF_BEFORE.mark
def test_who_had_a_message_does_not_hide_it_from_who_has_it_now(held: Held) -> None:
    held.send(a_message())
    (first,) = held.take(1)
    first.hide(timedelta())
    held.time.sleep(MOMENT)
    (second,) = held.take(1)

    first.hide(timedelta())
    held.time.sleep(MOMENT)

    assert held.receive() == []
    second.hide(timedelta())
    assert held.comes_back(FIRST.run_id, not_before=held.time.now())


@RECEIPTS_OF_BEFORE.mark
def test_who_had_a_message_does_not_acknowledge_it_for_who_has_it_now(held: Held) -> None:
    held.send(a_message())
    (first,) = held.take(1)
    first.hide(timedelta())
    held.time.sleep(MOMENT)
    (second,) = held.take(1)

    held.pool.acknowledge(first)

    assert held.queue.backlog("default") == 1
    second.hide(timedelta())
    assert held.comes_back(FIRST.run_id, not_before=held.time.now())


@EXPIRED_RECEIPTS_MOTO.mark
@EXPIRED_RECEIPTS_MINISTACK.mark
def test_what_is_visible_again_is_acknowledged_too_late(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1, held.brief)
    held.time.sleep(held.brief + MOMENT)

    held.pool.acknowledge(delivery)

    assert held.receive() == [FIRST.run_id]


def test_an_acknowledged_message_is_gone(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)
    held.pool.acknowledge(delivery)

    held.time.sleep(2 * held.brief)
    assert held.receive() == []
    assert held.queue.backlog("default") == 0


def test_a_run_s_next_message_waits_behind_the_one_in_flight(held: Held) -> None:
    held.send(a_message(FIRST, dispatch=1))
    (delivery,) = held.take(1)
    held.send(a_message(FIRST, dispatch=2), a_message(SECOND))

    assert held.receive() == [SECOND.run_id]

    held.pool.acknowledge(delivery)
    assert held.receive() == [FIRST.run_id]


def exclusive(key: RunKey, dispatch: int = 1) -> RunMessage:
    return a_message(key, dispatch=dispatch).model_copy(update={"exclusive": True})


def test_exclusive_runs_of_a_job_wait_for_each_other(held: Held) -> None:
    others = [run_key(job_id="report2"), run_key(tenant="other"), run_key(uid="uid00002")]
    held.send(exclusive(FIRST), exclusive(SECOND), *map(exclusive, others))

    taken = held.take(10)
    received = [decode_message(delivery.body) for delivery in taken]

    # A receive may return several messages of a group, in order, to one receiver.
    of_job = [m.run_id for m in received if m.key in (FIRST, SECOND)]
    assert of_job in ([FIRST.run_id], [FIRST.run_id, SECOND.run_id])
    assert {m.key for m in received} >= set(others), "jobs, tenants and creations share no group"
    assert held.receive() == []


def test_the_second_exclusive_run_is_not_received_while_the_first_is_in_flight(
    held: Held,
) -> None:
    held.send(exclusive(FIRST))
    (delivery,) = held.take(1)
    held.send(exclusive(SECOND), a_message(THIRD))

    assert held.receive() == [THIRD.run_id], "a run that is not exclusive has its own group"

    held.pool.acknowledge(delivery)
    assert held.receive() == [SECOND.run_id]


def test_runs_of_one_place_wait_for_each_other(held: Held) -> None:
    """A tenant may have one run at a time, across all of its jobs."""
    keys = [run_key(job_id=f"job{n}") for n in range(3)]
    of_tenant = [a_message(key).model_copy(update={"max_concurrent": 1}) for key in keys]
    held.send(*of_tenant, a_message(run_key(tenant="other")))
    done: list[str] = []
    while taken := held.take(10):
        received = [decode_message(delivery.body) for delivery in taken]
        first = next((m for m in received if m.tenant == "acme"), None)
        assert first is None or first.job_id == f"job{len(done)}", "in order"
        assert held.receive() == []
        for delivery, message in zip(taken, received, strict=True):
            if message.tenant == "acme":
                done.append(message.job_id)
            held.pool.acknowledge(delivery)

    assert done == ["job0", "job1", "job2"]


def test_exclusive_messages_are_merged_by_run_and_dispatch(held: Held) -> None:
    held.send(exclusive(FIRST), exclusive(SECOND), exclusive(FIRST), exclusive(FIRST, 2))

    seen = []
    while taken := held.take(1):
        message = decode_message(taken[0].body)
        seen.append((message.run_id, message.dispatch, message.exclusive))
        held.pool.acknowledge(taken[0])

    assert seen == [(FIRST.run_id, 1, True), (SECOND.run_id, 1, True), (FIRST.run_id, 2, True)]


@GROUP_SCOPED_DEDUP.mark
def test_messages_of_two_groups_are_not_merged(held: Held) -> None:
    """For example if a job's runs become exclusive between two sends of a dispatch. The claim
    ensures that one of the two does nothing.
    """
    held.send(a_message(FIRST))
    held.send(exclusive(FIRST))

    assert held.receive() == [FIRST.run_id, FIRST.run_id]


def test_the_backlog_is_what_waits_and_what_is_in_flight(held: Held) -> None:
    assert held.queue.backlog("default") == 0
    held.send(*(a_message(run_key(at(f"12:{n:02d}"))) for n in range(12)))
    (delivery, *_) = held.take(10)

    assert held.queue.backlog("default") == 12
    held.pool.acknowledge(delivery)
    assert held.queue.backlog("default") == 11
    assert held.queue.backlog("nowhere") == 0


def test_what_is_no_longer_ours_is_not_hidden(held: Held) -> None:
    held.send(a_message())
    (delivery,) = held.take(1)
    held.pool.acknowledge(delivery)

    delivery.hide(LEASE)

    assert held.receive() == []


def test_a_dead_letter_is_kept_with_its_failure(held: Held) -> None:
    held.dead_letters.put("garbage", "not a run message", dedup="a")
    held.dead_letters.put("silence", "", dedup="b")
    held.dead_letters.put("long", "x" * 5000, dedup="c")

    assert sorted(held.pool.letters()) == [
        ("garbage", "not a run message"),
        ("long", "x" * 1000),
        ("silence", "-"),
    ]


def test_a_dead_letter_is_kept_once(held: Held) -> None:
    held.dead_letters.put("garbage", "one", dedup="a")
    held.dead_letters.put("garbage", "two", dedup="a")

    assert held.pool.letters() == [("garbage", "one")]


@takes_minutes
@pytest.mark.timeout(600)
def test_a_dead_letter_is_kept_once_within_five_minutes(held: Held) -> None:
    held.dead_letters.put("garbage", "one", dedup="a")
    held.time.sleep(timedelta(minutes=4, seconds=55))
    held.dead_letters.put("garbage", "two", dedup="a")
    held.time.sleep(timedelta(seconds=10))
    held.dead_letters.put("garbage", "three", dedup="a")

    assert held.pool.letters() == [("garbage", "one"), ("garbage", "three")]


def test_a_failure_has_no_character_that_sqs_refuses() -> None:
    """Tests the adapter alone: moto accepts what SQS rejects."""
    sent: list[Any] = []

    class Client:
        def send_message(self, **request: object) -> None:
            sent.append(request["MessageAttributes"])

    letters = SqsDeadLetters(Client(), queue_url="dlq")  # type: ignore[arg-type]
    letters.put("body", "a\x1b.zip\t\n ü 🙂 \ufffe\x00", dedup="d")

    assert [each["failure"]["StringValue"] for each in sent] == ["a?.zip\t\n ü 🙂 ??"]
