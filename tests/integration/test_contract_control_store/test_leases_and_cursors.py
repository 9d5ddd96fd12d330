"""The contract of `ControlStore`: leases of watchers and cursors of shards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.items import from_item, to_item
from nextfire.domain.ports.control import ControlStore, Lease, Takeover
from tests.builders import NOON, at
from tests.integration.backends import on_dynamodb
from tests.integration.races import ROUNDS, at_once


def test_a_group_without_a_lease_has_none(store: ControlStore) -> None:
    assert store.lease(0) is None


def test_a_lease_is_kept_for_each_group(store: ControlStore) -> None:
    first, second = Lease("a", 1, 0), Lease("b", 7, 3, released=True, idle=True, groups=2)

    assert store.replace_lease(0, None, first)
    assert store.replace_lease(1, None, second)

    assert (store.lease(0), store.lease(1)) == (first, second)


def test_a_lease_keeps_its_renewal_and_takeover(store: ControlStore) -> None:
    takeover = Takeover(NOON, at("12:00:03"))
    store.replace_lease(0, None, Lease("a", 1, 0, renewed_at=at("12:01"), takeover=takeover))

    lease = store.lease(0)

    assert lease is not None
    assert (lease.renewed_at, lease.takeover) == (at("12:01"), takeover)


def test_only_the_lease_that_is_stored_can_be_replaced(store: ControlStore) -> None:
    first, renewed, released = Lease("a", 1, 0), Lease("a", 1, 1), Lease("a", 1, 2, released=True)
    store.replace_lease(0, None, first)

    assert not store.replace_lease(0, None, Lease("b", 1, 0))
    assert not store.replace_lease(0, Lease("a", 0, 0), Lease("b", 2, 0)), (
        "a lease of another epoch"
    )
    assert store.replace_lease(0, first, renewed)
    assert not store.replace_lease(0, first, Lease("b", 2, 0))
    assert store.replace_lease(0, renewed, released)
    assert store.replace_lease(0, released, Lease("b", 2, 0))
    assert store.lease(0) == Lease("b", 2, 0)


def test_a_missing_lease_cannot_be_replaced(store: ControlStore) -> None:
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


def test_missing_cursors_are_seeded(store: ControlStore) -> None:
    assert store.cursors(range(3)) == {}

    store.seed_cursors(2, NOON)
    store.move_cursor(1, at("12:05"), epoch=1)
    store.seed_cursors(3, at("11:55"))

    assert store.cursors(range(9)) == {0: NOON, 1: at("12:05"), 2: at("11:55")}
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


def test_of_holders_that_move_a_cursor_at_once_the_latest_has_it(store: ControlStore) -> None:
    for shard in ROUNDS:
        moved = at_once(
            *(
                partial(store.move_cursor, shard, NOON + timedelta(minutes=epoch), epoch)
                for epoch in (7, 3, 10, 1, 5)
            )
        )

        assert moved[2]
        assert store.cursors([shard]) == {shard: at("12:10")}


def test_a_cursor_that_is_seeded_and_moved_at_once_is_moved(store: ControlStore) -> None:
    def seed() -> bool:
        store.seed_cursors(len(ROUNDS), NOON)
        return True

    shards = list(ROUNDS)
    at_once(seed, *(partial(store.move_cursor, shard, at("12:10"), 1) for shard in shards))

    assert store.cursors(shards) == dict.fromkeys(shards, at("12:10"))


@on_dynamodb
def test_a_cursor_moved_while_it_is_seeded_stays(tables: Any) -> None:
    client: Any = dynamodb()
    store = DynamoDbControlStore(client, table=tables.control)

    class MovedMeanwhile:
        """A client; a holder moves the cursor before the client's first write."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def put_item(self, **request: Any) -> Any:
            store.move_cursor(0, NOON, epoch=7)
            return client.put_item(**request)

    racing: Any = MovedMeanwhile()
    DynamoDbControlStore(racing, table=tables.control).seed_cursors(1, at("11:50"))

    assert store.cursors([0]) == {0: NOON}


@on_dynamodb
def test_a_cursor_moved_while_it_is_seeded_again_stays(tables: Any) -> None:
    """A holder repairs the cursor between the seeder's read and its write."""
    real = dynamodb()
    store = DynamoDbControlStore(real, table=tables.control)
    real.put_item(TableName=tables.control, Item=to_item({"id": "cursor#0", "epoch": 5}))

    class Between:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def batch_get_item(self, **request: Any) -> Any:
            answer = real.batch_get_item(**request)
            assert store.move_cursor(0, NOON, epoch=6)
            return answer

    client: Any = Between()
    DynamoDbControlStore(client, table=tables.control).seed_cursors(1, NOON)

    assert store.cursors([0]) == {0: NOON}


@on_dynamodb
def test_a_cursor_within_a_minute_is_that_minutes(tables: Any) -> None:
    client = dynamodb()
    values = {"id": "cursor#0", "minute": "2026-05-24T12:00:30Z", "epoch": 5}
    client.put_item(TableName=tables.control, Item=to_item(values))

    assert DynamoDbControlStore(client, table=tables.control).cursors([0]) == {0: NOON}


@on_dynamodb
def test_a_cursor_is_stored_as_people_read_it(tables: Any) -> None:
    client = dynamodb()
    DynamoDbControlStore(client, table=tables.control).move_cursor(3, NOON, epoch=9)

    [item] = client.scan(TableName=tables.control)["Items"]
    assert from_item(item) == {"id": "cursor#3", "minute": "2026-05-24T12:00:00Z", "epoch": 9}
