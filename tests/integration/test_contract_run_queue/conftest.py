"""The contract of `RunQueue`, `Delivery` and `DeadLetters`: on fakes, SQLite, emulators of SQS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from tests.integration.backends import MEMORY, MOTO, SQLITE, SQS, on_each

CONTRACT_OF = (RunQueue, Delivery, DeadLetters)


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


backend = on_each(MEMORY, SQLITE, *SQS)


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


def exclusive(key: RunKey, dispatch: int = 1) -> RunMessage:
    return a_message(key, dispatch=dispatch).model_copy(update={"exclusive": True})
