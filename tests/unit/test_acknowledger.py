"""What is done at about the same time is deleted with one request, and what was not is told."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from nextfire.adapters.run_queue import SqsDelivery
from nextfire.adapters.worker_journal import WorkerJournal
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.acknowledger import Acknowledger
from nextfire.wiring.telemetry import Telemetry
from tests.builders import at
from tests.fakes import Clock, LateExecutor


class Inbox:
    """Refuses what it is told to."""

    def __init__(self, *refused: str) -> None:
        self.acknowledged: list[list[str]] = []
        self._refused = list(refused)

    def acknowledge(self, deliveries: list[SqsDelivery]) -> list[str]:
        self.acknowledged.append([each.message_id for each in deliveries])
        return self._refused


class Witness(Inbox):
    """Notes what is in *journal* when it is asked to delete."""

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
    """Have *count* messages deleted that are done at one moment."""
    stands_in: Any = inbox
    client: Any = None
    background = LateExecutor()
    acknowledger: Acknowledger[SqsDelivery] = Acknowledger(
        stands_in, background, Clock(at("12:00")), Telemetry("worker"), WorkerJournal()
    )
    for n in range(count):
        acknowledger.put(SqsDelivery(client, "url", "body", "handle", f"m{n}", "group"))
    acknowledger.close()


def test_ten_go_together_and_the_last_ones_at_the_end() -> None:
    inbox = Inbox()

    acknowledged(inbox, 23)

    assert [len(each) for each in inbox.acknowledged] == [10, 10, 3]
    assert [*chain(*inbox.acknowledged)] == [f"m{n}" for n in range(23)]


@pytest.mark.parametrize("refused", [[], ["m1: Expired"]])
def test_what_was_refused_is_told(refused: list[str], caplog: pytest.LogCaptureFixture) -> None:
    acknowledged(Inbox(*refused), 2)

    assert [record.getMessage() for record in caplog.records] == ["not acknowledged"] * len(refused)


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_held_until_it_is_deleted(*, fails: bool) -> None:
    """Hidden, it blocks its group."""
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
