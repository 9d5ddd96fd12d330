"""Queues in SQLite: what the contract of queues leaves open."""

from __future__ import annotations

from datetime import timedelta

from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.run_queue import SqliteDeadLetters, SqliteInbox, SqliteRunQueue
from tests.builders import LEASE, NOON, a_message, run_key
from tests.fakes import Clock
from tests.integration.sqlite_file import another_process

NOW = timedelta()


def test_a_message_that_is_received_too_often_goes_to_the_dead_letters(database: Database) -> None:
    clock = Clock(NOON)
    queue = SqliteRunQueue(database, clock=clock, pools=["default"])
    inbox = SqliteInbox(database, clock=clock, pool="default", max_receives=2)
    letters = SqliteDeadLetters(database, clock=clock, pool="default")
    queue.send([("default", a_message())])
    for _ in range(2):
        assert len(inbox.receive(1, wait=NOW, hidden_for=LEASE)) == 1
        clock.advance(LEASE)

    assert inbox.receive(1, wait=NOW, hidden_for=LEASE) == []
    assert queue.backlog("default") == 0
    assert letters.list() == [(a_message().encode(), "received too often")]


def test_each_receive_of_each_message_has_its_own_handle(database: Database) -> None:
    """A worker's journal lists the messages that the worker holds by their handles."""
    clock = Clock(NOON)
    queue = SqliteRunQueue(database, clock=clock, pools=["default"])
    inbox = SqliteInbox(database, clock=clock, pool="default")
    for job_id in ("a", "b"):
        queue.send([("default", a_message(run_key(job_id=job_id)))])
    first = inbox.receive(2, wait=NOW, hidden_for=LEASE)
    clock.advance(LEASE)
    second = inbox.receive(2, wait=NOW, hidden_for=LEASE)

    assert len({each.receipt_handle for each in (*first, *second)}) == 4


def test_a_clock_that_is_set_back_hides_no_message_for_longer(database: Database) -> None:
    clock = Clock(NOON)
    queue = SqliteRunQueue(database, clock=clock, pools=["default"])
    inbox = SqliteInbox(database, clock=clock, pool="default")
    queue.send([("default", a_message())])
    inbox.receive(1, wait=NOW, hidden_for=LEASE)

    clock.move_to(NOON - timedelta(hours=1))

    assert len(inbox.receive(1, wait=NOW, hidden_for=LEASE)) == 1


def test_who_waits_receives_what_another_process_sends(database: Database) -> None:
    class Sending(Clock):
        """A clock on which another process sends a message during the first sleep."""

        def sleep(self, duration: timedelta) -> None:
            queue.send([("default", a_message())])
            super().sleep(duration)

    clock = Sending(NOON)
    queue = SqliteRunQueue(another_process(database), clock=Clock(NOON), pools=["default"])
    inbox = SqliteInbox(database, clock=clock, pool="default")

    assert len(inbox.receive(1, wait=timedelta(seconds=20), hidden_for=LEASE)) == 1
    assert clock.now() - NOON <= timedelta(milliseconds=100)


def test_who_waits_receives_what_becomes_visible_again(database: Database) -> None:
    clock = Clock(NOON)
    inbox = SqliteInbox(database, clock=clock, pool="default")
    SqliteRunQueue(database, clock=clock, pools=["default"]).send([("default", a_message())])
    inbox.receive(1, wait=NOW, hidden_for=timedelta(seconds=5))

    assert len(inbox.receive(1, wait=timedelta(seconds=20), hidden_for=LEASE)) == 1
    assert timedelta(seconds=5) <= clock.now() - NOON < timedelta(seconds=6)
