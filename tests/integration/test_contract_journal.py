"""The contract of `Journal`, on the fake and on the memory shared by worker and supervisor.
`tests/unit/test_worker_journal.py` tests the properties of the shared memory.
"""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.ports.queues import Journal
from tests.fakes import MemoryJournal

CONTRACT_OF = (Journal,)
NO_CLIENT: Any = None


@pytest.fixture(params=[MemoryJournal, WorkerJournal])
def journal(request: pytest.FixtureRequest) -> Any:
    return request.param()


def delivery(name: str) -> SqsDelivery:
    return SqsDelivery(NO_CLIENT, "url", "body", f"handle {name}", name, "group")


def listed(journal: Any) -> list[str]:
    held = journal.held() if callable(journal.held) else journal.held
    return [each.message_id for each in held]


def test_it_lists_what_was_received_and_not_released(journal: Journal[SqsDelivery]) -> None:
    first, second, third = map(delivery, "abc")

    journal.hold([first, second])
    journal.release([first])
    journal.hold([third])
    assert listed(journal) == ["b", "c"]

    journal.release([second, third])
    assert listed(journal) == []


def test_it_lists_in_the_order_in_which_it_was_received(journal: Journal[SqsDelivery]) -> None:
    received = [delivery(str(n)) for n in range(6)]

    journal.hold(received[:3])
    journal.release([received[0]])
    journal.hold(received[3:])

    assert listed(journal) == ["1", "2", "3", "4", "5"]


def test_what_is_not_listed_may_be_released(journal: Journal[SqsDelivery]) -> None:
    first, second = map(delivery, "ab")
    journal.hold([first])

    journal.release([second])
    journal.release([first, first])

    assert listed(journal) == []


def test_a_message_that_was_received_twice_is_listed_twice(journal: Journal[SqsDelivery]) -> None:
    """Its visibility timeout has expired meanwhile; the second receipt is valid."""
    first = delivery("a")
    second = SqsDelivery(NO_CLIENT, "url", "body", "another handle", "a", "group")

    journal.hold([first])
    journal.hold([second])
    journal.release([first])

    assert listed(journal) == ["a"]
