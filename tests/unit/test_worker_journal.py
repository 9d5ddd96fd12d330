"""The journal of messages that a worker holds: complete, ordered, and valid after any crash."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.adapters.worker import journal as worker_journal
from nextfire.adapters.worker.journal import HeldMessage, WorkerJournal

NO_CLIENT: Any = None


def delivery(name: str, body: str = "body") -> SqsDelivery:
    return SqsDelivery(NO_CLIENT, "url", body, f"handle {name}", name, "ü", f"token {name}")


def names(journal: WorkerJournal) -> list[str]:
    return [held.message_id for held in journal.held()]


def test_it_lists_what_is_needed_to_give_a_message_back() -> None:
    journal = WorkerJournal()

    journal.hold([delivery("a")])

    assert journal.held() == [HeldMessage("handle a", "a", "ü", "token a", "body")]


def test_an_oversized_message_is_listed_without_its_body() -> None:
    journal = WorkerJournal()

    journal.hold([delivery("a", body="x" * 300_000)])

    assert journal.held() == [HeldMessage("handle a", "a", "ü", "token a", "")]


def test_what_it_has_no_room_for_is_not_listed() -> None:
    journal = WorkerJournal()
    received = [delivery(str(n)) for n in range(1030)]

    journal.hold(received)

    assert len(names(journal)) == 1024
    journal.release(received)
    journal.hold(received[:1])
    assert names(journal) == ["0"]


class Dying(WorkerJournal):
    """A journal whose process dies after it wrote *left* more bytes."""

    left = 1 << 30

    def _store(self, first: int, data: bytes) -> None:
        super()._store(first, data[: self.left])
        self.left = max(self.left - len(data), 0)


@pytest.mark.parametrize("written", range(110))
def test_a_partly_written_entry_is_not_listed(written: int) -> None:
    journal = Dying()
    journal.hold([delivery("a"), delivery("b")])
    journal.release([delivery("b")])  # its place is reused; the rest of its bytes stay
    size = len(worker_journal._encode(HeldMessage("handle c", "c", "ü", "token c", "body")))  # noqa: SLF001

    journal.left = written
    journal.hold([delivery("c")])

    whole = written >= size + 16
    assert names(journal) == (["a", "c"] if whole else ["a"])


@pytest.mark.parametrize("written", range(17))
def test_a_release_that_was_broken_off_leaves_the_entry_or_none(written: int) -> None:
    journal = Dying()
    journal.hold([delivery("a"), delivery("b")])

    journal.left = written
    journal.release([delivery("a")])

    # If the last bytes of the checksum are zero already, the entry is gone a byte early.
    assert names(journal) in (["b"], ["a", "b"])
    assert written < 16 or names(journal) == ["b"]
