"""The list of what a worker holds: complete, in order, and valid at whichever moment it dies."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.adapters import worker_journal
from nextfire.adapters.run_queue import SqsDelivery
from nextfire.adapters.worker_journal import HeldMessage, WorkerJournal

NO_CLIENT: Any = None


def delivery(name: str, body: str = "body") -> SqsDelivery:
    return SqsDelivery(NO_CLIENT, "url", body, f"handle {name}", name, "ü", f"token {name}")


def names(journal: WorkerJournal) -> list[str]:
    return [held.message_id for held in journal.held()]


def test_it_lists_what_is_needed_to_give_a_message_back() -> None:
    journal = WorkerJournal()

    journal.hold([delivery("a")])

    assert journal.held() == [HeldMessage("handle a", "a", "ü", "token a", "body")]


def test_of_what_is_too_long_to_be_ours_the_receipt_is_listed() -> None:
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
    """Its process dies after *left* more bytes were written."""

    left = 1 << 30

    def _store(self, first: int, data: bytes) -> None:
        super()._store(first, data[: self.left])
        self.left = max(self.left - len(data), 0)


@pytest.mark.parametrize("written", range(110))
def test_an_entry_whose_writing_was_broken_off_is_not_listed(written: int) -> None:
    journal = Dying()
    journal.hold([delivery("a"), delivery("b")])
    journal.release([delivery("b")])  # the place is reused, over what is left of b
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

    # The last bytes of the checksum may be zero already: then the entry is gone a byte early.
    assert names(journal) in (["b"], ["a", "b"])
    assert written < 16 or names(journal) == ["b"]
