"""Entries that were handled and could not be deleted: deleted later, and not handled again."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, cast

import pytest

from nextfire.domain.due import Slot
from nextfire.domain.errors import UnavailableError
from nextfire.usecases.dispatch.deletions import Deletions
from nextfire.usecases.dispatch.holding import HeldEntries
from tests.builders import NOON
from tests.fakes import Clock, InlineExecutor, LateExecutor
from tests.world import World

BUCKET = "2026-05-24T12:00Z#000"
A, B, C = (Slot(BUCKET, name) for name in "abc")
TENTH = timedelta(milliseconds=100)


class Table:
    """Deletes only the slots of `open`. Records each request."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open: set[Slot] = set()
        self.down = False

    def delete(self, slots: Collection[Slot]) -> set[Slot]:
        self.asked.append("".join(slot.sort_key for slot in slots))
        if self.down:
            raise UnavailableError("no answer")
        return self.open & {*slots}


class Stand:
    def __init__(self, lanes: Any = None) -> None:
        self.table, self.clock = Table(), Clock(NOON)
        self.holding = HeldEntries({}, 10)
        self.deletions = Deletions(
            cast("Any", self.table), self.holding, self.clock, lanes or InlineExecutor()
        )

    def retry(self) -> None:
        self.deletions.retry(self.clock.now())


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_what_was_deleted_is_not_kept(stand: Stand) -> None:
    stand.table.open = {A, B}

    assert stand.deletions.delete([A, B]) == 0

    stand.clock.advance(minutes=1)
    stand.retry()
    assert stand.table.asked == ["ab"]
    assert stand.deletions.next_at is None
    assert len(stand.holding) == 0
    assert stand.holding.knows(A)


def test_only_what_is_left_is_deleted_again(stand: Stand) -> None:
    stand.table.open = {A}
    assert stand.deletions.delete([A, B, C]) == 2
    assert stand.holding.knows(B)
    assert len(stand.holding) == 2
    assert stand.deletions.next_at == NOON + TENTH
    stand.table.open = {B, C}

    stand.retry()
    assert stand.table.asked == ["abc"], "it is too early"
    stand.clock.advance(TENTH)
    stand.retry()

    assert stand.table.asked == ["abc", "bc"]
    assert len(stand.holding) == 0
    assert stand.holding.knows(B), "a read that began before may show it"


def test_while_something_is_left_nothing_else_is_tried(stand: Stand) -> None:
    stand.deletions.delete([A])

    assert stand.deletions.delete([B]) == 0
    stand.clock.advance(TENTH)
    stand.table.open = {B}
    stand.retry()
    stand.clock.advance(TENTH)
    stand.retry()

    assert stand.table.asked == ["a", "ab", "a"]


def test_retries_become_rarer_while_nothing_is_deleted(stand: Stand) -> None:
    stand.deletions.delete([A, B])
    waits = []
    for _ in range(8):
        assert stand.deletions.next_at is not None
        waits.append(stand.deletions.next_at - stand.clock.now())
        stand.clock.move_to(stand.deletions.next_at)
        stand.retry()

    assert [wait / TENTH for wait in waits] == [1, 2, 4, 8, 16, 32, 40, 40]
    stand.table.open = {A}
    stand.clock.advance(seconds=4)
    stand.retry()
    assert stand.deletions.next_at == stand.clock.now() + TENTH


def test_an_outage_leaves_all(stand: Stand) -> None:
    stand.table.down = True

    assert stand.deletions.delete([A, B]) == 2

    stand.table.down, stand.table.open = False, {A, B}
    stand.clock.advance(TENTH)
    stand.retry()
    assert stand.table.asked == ["ab", "ab"]
    assert len(stand.holding) == 0


def test_one_retry_runs_at_a_time() -> None:
    stand = Stand(LateExecutor())
    stand.deletions.delete([A])
    stand.table.open = {A}
    stand.clock.advance(TENTH)
    stand.retry()
    stand.clock.advance(minutes=1)

    stand.retry()
    assert stand.table.asked == ["a"]
    assert stand.deletions.next_at is None
    stand.deletions.finish()

    assert stand.table.asked == ["a", "a"]


def test_a_retry_is_limited_and_goes_round(stand: Stand) -> None:
    slots = [Slot(BUCKET, f"{n:03d},") for n in range(300)]
    stand.deletions.delete(slots)
    stand.table.open = {*slots[:100]}
    for _ in range(2):
        stand.clock.advance(seconds=1)
        stand.retry()

    first, second = (asked.split(",")[:-1] for asked in stand.table.asked[1:])
    assert (first[0], first[-1], len(first)) == ("000", "199", 200)
    assert (second[0], second[-1], len(second)) == ("200", "199", 200)


def test_after_a_retry_that_left_nothing_the_next_one_follows_at_once(stand: Stand) -> None:
    slots = [Slot(BUCKET, f"{n:03d}") for n in range(300)]
    stand.deletions.delete(slots)
    stand.table.open = {*slots}
    stand.clock.advance(TENTH)

    stand.retry()
    stand.retry()

    assert len(stand.holding) == 0


def test_a_watcher_with_something_to_delete_is_not_idle(world: World) -> None:
    world.register(type="ONCE", schedule="2026-05-24T12:00:00Z")
    world.tick_at("11:59:59")
    world.due.deletes = False

    world.tick_at("12:00")
    assert not world.watcher.is_idle
    world.due.deletes = True
    world.tick_at("12:00:01")

    assert world.entries == []
    assert world.watcher.is_idle
    assert world.sent == ["report 12:00"]
