"""The acknowledger deletes messages in batches of ten and logs the ones it could not delete."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import chain
from typing import Any, TypeVar

import pytest

from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.acknowledger import Acknowledger
from nextfire.wiring.telemetry import Telemetry
from tests.builders import at
from tests.fakes import Clock, LateExecutor

T = TypeVar("T")


class Inbox:
    """A queue that reports *refused* as not deleted."""

    def __init__(self, *refused: str) -> None:
        self.acknowledged: list[list[str]] = []
        self._refused = list(refused)

    def acknowledge(self, deliveries: list[SqsDelivery]) -> list[str]:
        self.acknowledged.append([each.message_id for each in deliveries])
        return self._refused


class Witness(Inbox):
    """An inbox that records which messages the journal holds when it gets a delete request."""

    def __init__(self, journal: WorkerJournal, *, fails: bool) -> None:
        super().__init__()
        self.journal = journal
        self.listed: list[str] = []
        self._fails = fails

    def acknowledge(self, deliveries: list[SqsDelivery]) -> list[str]:
        self.listed = [each.message_id for each in self.journal.held()]
        if self._fails:
            raise UnavailableError("throttled")
        return super().acknowledge(deliveries)


def acknowledged(inbox: Inbox, count: int) -> None:
    """Acknowledge *count* messages at one instant."""
    fake_inbox: Any = inbox
    client: Any = None
    background = LateExecutor()
    acknowledger: Acknowledger[SqsDelivery] = Acknowledger(
        fake_inbox, background, Clock(at("12:00")), Telemetry("worker"), WorkerJournal()
    )
    for n in range(count):
        acknowledger.put(SqsDelivery(client, "url", "body", "handle", f"m{n}", "group"))
    acknowledger.close()


def test_messages_are_deleted_ten_at_a_time_and_the_rest_on_close() -> None:
    inbox = Inbox()

    acknowledged(inbox, 23)

    assert [len(each) for each in inbox.acknowledged] == [10, 10, 3]
    assert [*chain(*inbox.acknowledged)] == [f"m{n}" for n in range(23)]


@pytest.mark.parametrize("refused", [[], ["m1: Expired"]])
def test_undeleted_messages_are_logged(
    refused: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    acknowledged(Inbox(*refused), 2)

    assert [record.getMessage() for record in caplog.records] == ["not acknowledged"] * len(refused)


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_held_until_it_is_deleted(*, fails: bool) -> None:
    """A hidden message blocks its message group until it is deleted."""
    client: Any = None
    journal, background = WorkerJournal(), LateExecutor()
    inbox: Any = Witness(journal, fails=fails)
    acknowledger = Acknowledger(inbox, background, Clock(at("12:00")), Telemetry("worker"), journal)
    done = SqsDelivery(client, "url", "body", "handle", "m", "group")
    journal.hold([done])

    acknowledger.put(done)
    acknowledger.close()

    assert inbox.listed == ["m"]
    assert journal.held() == []


def test_messages_are_deleted_although_no_thread_could_be_started_for_the_first() -> None:
    class WithoutThread(LateExecutor):
        calls = 0

        def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("can't start new thread")
            return super().submit(fn, *args, **kwargs)

    inbox = Inbox()
    fake_inbox: Any = inbox
    client: Any = None
    acknowledger: Acknowledger[SqsDelivery] = Acknowledger(
        fake_inbox, WithoutThread(), Clock(at("12:00")), Telemetry("worker"), WorkerJournal()
    )
    for n in range(3):
        acknowledger.put(SqsDelivery(client, "url", "body", "handle", f"m{n}", "group"))
    acknowledger.close()

    assert inbox.acknowledged == [["m0", "m1", "m2"]]
