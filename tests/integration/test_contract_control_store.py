"""What `ControlStore` promises, on the fake and on DynamoDB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nextfire.adapters.aws import dynamodb
from nextfire.adapters.control_store import DynamoDbControlStore
from nextfire.domain.ports import ControlStore, Lease
from tests.builders import NOON, at
from tests.fakes import MemoryControlStore


@pytest.fixture(params=["memory", "dynamodb"])
def store(request: pytest.FixtureRequest) -> ControlStore:
    if request.param == "memory":
        return MemoryControlStore()
    tables = request.getfixturevalue("tables")
    return DynamoDbControlStore(dynamodb(), table=tables.control)


def test_a_group_without_a_lease_has_none(store: ControlStore) -> None:
    assert store.lease(0) is None


def test_a_lease_is_kept_for_each_group(store: ControlStore) -> None:
    first, second = Lease("a", 1, 0), Lease("b", 7, 3, released=True)

    assert store.replace_lease(0, None, first)
    assert store.replace_lease(1, None, second)

    assert (store.lease(0), store.lease(1)) == (first, second)


def test_only_the_lease_that_is_stored_can_be_replaced(store: ControlStore) -> None:
    first, renewed, released = Lease("a", 1, 0), Lease("a", 1, 1), Lease("a", 1, 2, released=True)
    store.replace_lease(0, None, first)

    assert not store.replace_lease(0, None, Lease("b", 1, 0))
    assert store.replace_lease(0, first, renewed)
    assert not store.replace_lease(0, first, Lease("b", 2, 0))
    assert store.replace_lease(0, renewed, released)
    assert store.replace_lease(0, released, Lease("b", 2, 0))
    assert store.lease(0) == Lease("b", 2, 0)


def test_there_is_no_lease_to_replace_where_none_is(store: ControlStore) -> None:
    assert not store.replace_lease(0, Lease("a", 1, 0), Lease("a", 1, 1))
    assert store.lease(0) is None


def test_a_repeated_replacement_finds_its_own_success(store: ControlStore) -> None:
    first, renewed = Lease("a", 1, 0), Lease("a", 1, 1)

    assert store.replace_lease(0, None, first)
    assert store.replace_lease(0, None, first)
    assert store.replace_lease(0, first, renewed)
    assert store.replace_lease(0, first, renewed)


@pytest.mark.parametrize("was", [None, Lease("dead", 4, 9)], ids=["first", "take-over"])
def test_of_twenty_concurrent_replacements_one_succeeds(
    store: ControlStore, was: Lease | None
) -> None:
    if was is not None:
        store.replace_lease(0, None, was)

    with ThreadPoolExecutor(20) as threads:
        won = list(
            threads.map(lambda n: store.replace_lease(0, was, Lease(f"w{n}", 5, 0)), range(20))
        )

    assert won.count(True) == 1
    assert store.lease(0) == Lease(f"w{won.index(True)}", 5, 0)


def test_cursors_are_seeded_where_there_are_none(store: ControlStore) -> None:
    assert store.cursors(range(3)) == {}

    store.seed_cursors(2, NOON)
    store.move_cursor(1, at("12:05"), epoch=1)
    store.seed_cursors(3, at("11:00"))

    assert store.cursors(range(9)) == {0: NOON, 1: at("12:05"), 2: at("11:00")}
    assert store.cursors([]) == {}


def test_more_cursors_are_read_than_one_request_holds(store: ControlStore) -> None:
    store.seed_cursors(130, NOON)

    assert store.cursors(range(130)) == dict.fromkeys(range(130), NOON)


def test_a_cursor_is_moved_by_the_latest_holder_only(store: ControlStore) -> None:
    store.seed_cursors(1, NOON)

    assert store.move_cursor(0, at("12:01"), epoch=2)
    assert store.move_cursor(0, at("12:02"), epoch=2)
    assert not store.move_cursor(0, at("12:09"), epoch=1)
    assert store.move_cursor(0, at("12:03"), epoch=3)
    assert not store.move_cursor(0, at("12:04"), epoch=2)
    assert store.cursors([0]) == {0: at("12:03")}
