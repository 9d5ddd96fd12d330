"""The contract of `ControlStore`: items that do not decode are reported and replaced."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.items import to_item
from nextfire.domain.ports.control import Lease
from tests.builders import NOON, at
from tests.integration.backends import on_dynamodb
from tests.integration.test_contract_control_store.conftest import DAY, Table

# Item forms that no watcher writes. The fake has one form for all of them.
BROKEN_LEASES: Mapping[str, Mapping[str, object]] = {
    "nothing but its id": {},
    "no epoch": {"holder": "a", "beat": 3},
    "no beat": {"holder": "a", "epoch": 7},
    "no holder": {"epoch": 7, "beat": 3},
    "epoch a text": {"holder": "a", "epoch": "7", "beat": 3},
    "beat a text": {"holder": "a", "epoch": 7, "beat": "3"},
    "epoch a fraction": {"holder": "a", "epoch": Decimal("7.5"), "beat": 3},
    "beat below zero": {"holder": "a", "epoch": 7, "beat": -1},
    "epoch beyond counting": {"holder": "a", "epoch": Decimal("9e125"), "beat": 3},
    "epoch after our time": {"holder": "a", "epoch": 10**13, "beat": 3},
    "holder a number": {"holder": 5, "epoch": 7, "beat": 3},
    "released a text": {"holder": "a", "epoch": 7, "beat": 3, "released": "false"},
    "all of it other things": {
        "holder": {"a": 1},
        "epoch": ["7", {"b": b"c"}],
        "beat": {1, 2},
        "released": b"x",
    },
}
BROKEN_CURSORS: Mapping[str, Mapping[str, object]] = {
    "nothing but its id": {},
    "no minute": {"epoch": 7},
    "no epoch": {"minute": "2026-05-24T12:00:00Z"},
    "minute no instant": {"minute": "noon", "epoch": 7},
    "minute without offset": {"minute": "2026-05-24T12:00:00", "epoch": 7},
    "minute a number": {"minute": 1779624000, "epoch": 7},
    "minute before our time": {"minute": "0001-01-01T00:00:00Z", "epoch": 7},
    "minute after our time": {"minute": "9999-12-31T23:59:00Z", "epoch": 7},
    "minute at the end of all": {"minute": "0001-01-01T00:00:00+14:00", "epoch": 7},
    "epoch a text": {"minute": "2026-05-24T12:00:00Z", "epoch": "7"},
    "epoch beyond counting": {"minute": "2026-05-24T12:00:00Z", "epoch": Decimal("9e125")},
    "all of it other things": {"minute": {"a": [1]}, "epoch": {"b", "c"}},
}


class TestWhatDoesNotDecode:
    """An item that no watcher has written stops no watcher, and is repaired."""

    @pytest.fixture(params=BROKEN_LEASES.values(), ids=[*BROKEN_LEASES])
    def broken_lease(self, request: pytest.FixtureRequest) -> Mapping[str, object]:
        values: Mapping[str, object] = request.param
        return values

    @pytest.fixture(params=BROKEN_CURSORS.values(), ids=[*BROKEN_CURSORS])
    def broken_cursor(self, request: pytest.FixtureRequest) -> Mapping[str, object]:
        values: Mapping[str, object] = request.param
        return values

    def test_a_broken_lease_is_one_that_stands_still(
        self, table: Table, broken_lease: Mapping[str, object]
    ) -> None:
        table.store.replace_lease(0, None, Lease("a", 7, 3))
        table.spoil_lease(0, broken_lease)

        seen = table.store.lease(0)

        assert seen is not None
        assert not seen.released
        assert seen == table.store.lease(0)
        assert seen != Lease("a", 7, 3)
        assert 0 <= seen.epoch <= 7, "the next epoch can move cursors"

    def test_a_broken_lease_is_replaced_by_one_who_has_seen_it(
        self, table: Table, broken_lease: Mapping[str, object]
    ) -> None:
        table.spoil_lease(0, broken_lease)
        seen = table.store.lease(0)
        assert seen is not None
        first, second = Lease("b", seen.epoch + 1, 0), Lease("c", seen.epoch + 1, 0)

        assert not table.store.replace_lease(0, None, first)
        assert table.store.replace_lease(0, seen, first)
        assert table.store.replace_lease(0, seen, first), "a repetition finds its own success"
        assert not table.store.replace_lease(0, seen, second)
        assert table.store.lease(0) == first

    def test_a_sound_lease_in_the_place_of_a_broken_one_is_not_replaced(
        self, table: Table, broken_lease: Mapping[str, object]
    ) -> None:
        table.spoil_lease(0, broken_lease)
        seen = table.store.lease(0)
        assert seen is not None
        # As similar as a valid lease can be.
        sound = Lease("a", 7, 3)
        assert table.store.replace_lease(0, seen, sound)

        assert not table.store.replace_lease(0, seen, Lease("b", 99, 0))
        assert table.store.lease(0) == sound

    def test_another_broken_lease_is_not_the_one_that_was_seen(self, table: Table) -> None:
        table.spoil_lease(0, {"holder": "a", "epoch": 7, "beat": "3"})
        seen = table.store.lease(0)
        table.spoil_lease(0, {"holder": "a", "epoch": 7, "beat": "4"})

        assert table.store.lease(0) != seen
        assert not table.store.replace_lease(0, seen, Lease("b", 99, 0))

    def test_a_holder_whose_lease_was_broken_cannot_renew_it(self, table: Table) -> None:
        mine = Lease("a", 7, 3)
        table.store.replace_lease(0, None, mine)
        table.spoil_lease(0, {"holder": "a", "epoch": 7})

        assert not table.store.replace_lease(0, mine, Lease("a", 7, 4))

    def test_of_twenty_that_have_seen_a_broken_lease_one_takes_it(
        self, table: Table, broken_lease: Mapping[str, object]
    ) -> None:
        table.spoil_lease(0, broken_lease)
        seen = table.store.lease(0)

        def take(n: int) -> bool:
            return table.store.replace_lease(0, seen, Lease(f"w{n}", 8, 0))

        with ThreadPoolExecutor(20) as threads:
            won = list(threads.map(take, range(20)))

        assert won.count(True) == 1
        assert table.store.lease(0) == Lease(f"w{won.index(True)}", 8, 0)

    def test_a_broken_cursor_is_absent_until_it_is_seeded_a_day_back(
        self, table: Table, broken_cursor: Mapping[str, object]
    ) -> None:
        table.store.seed_cursors(3, at("11:50"))
        table.spoil_cursor(1, broken_cursor)
        assert table.store.cursors(range(3)).keys() == {0, 2}

        table.store.seed_cursors(3, NOON)

        assert table.store.cursors(range(3)) == {
            0: at("11:50"),
            1: at("11:50") - DAY,
            2: at("11:50"),
        }
        assert table.store.move_cursor(1, at("11:51"), epoch=1)

    def test_a_cursor_lost_in_an_outage_goes_back_to_before_the_others(self, table: Table) -> None:
        table.store.seed_cursors(2, NOON - 3 * DAY)
        table.spoil_cursor(0, {})

        table.store.seed_cursors(2, NOON)

        assert table.store.cursors([0]) == {0: NOON - 4 * DAY}

    def test_cursors_lost_all_at_once_go_a_day_back(self, table: Table) -> None:
        for shard in range(2):
            table.spoil_cursor(shard, {})

        table.store.seed_cursors(3, NOON)

        assert table.store.cursors(range(3)) == {0: NOON - DAY, 1: NOON - DAY, 2: NOON}

    def test_a_cursor_of_the_future_would_read_nothing_and_is_seeded_again(
        self, table: Table
    ) -> None:
        table.store.seed_cursors(2, NOON)
        table.store.move_cursor(0, at("12:15"), epoch=1)
        table.store.move_cursor(1, at("12:16"), epoch=1)

        table.store.seed_cursors(2, NOON)

        assert table.store.cursors(range(2)) == {0: at("12:15"), 1: NOON - DAY}

    def test_a_holder_that_knows_better_repairs_a_broken_cursor(
        self, table: Table, broken_cursor: Mapping[str, object]
    ) -> None:
        table.store.seed_cursors(1, at("11:50"))
        table.spoil_cursor(0, broken_cursor)

        assert table.store.move_cursor(0, NOON, epoch=8)
        assert table.store.cursors([0]) == {0: NOON}
        assert not table.store.move_cursor(0, at("11:00"), epoch=7)


@on_dynamodb
def test_a_broken_lease_that_is_gone_is_not_replaced(tables: Any) -> None:
    store = DynamoDbControlStore(dynamodb(), table=tables.control)
    dynamodb().put_item(TableName=tables.control, Item=to_item({"id": "lease#0"}))
    broken = store.lease(0)
    dynamodb().delete_item(TableName=tables.control, Key=to_item({"id": "lease#0"}))

    assert not store.replace_lease(0, broken, Lease("b", 1, 0))
    assert store.lease(0) is None


@on_dynamodb
def test_an_item_whose_id_names_no_shard_has_no_owner(tables: Any) -> None:
    client = dynamodb()
    for item_id in ("cursor#x", "cursor#", "cursor#-1", "lease#x", "other"):
        client.put_item(TableName=tables.control, Item=to_item({"id": item_id, "minute": "x"}))
    store = DynamoDbControlStore(client, table=tables.control)

    store.seed_cursors(2, NOON)

    assert store.cursors(range(2)) == {0: NOON, 1: NOON}
    assert store.lease(0) is None
