"""The contract of `ControlStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.control_store import DynamoDbControlStore
from nextfire.adapters.dynamodb.items import from_item, to_item
from nextfire.adapters.sqlite.control_store import SqliteControlStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.table import CONTROL
from nextfire.domain.audit_pass import Audit, next_audit
from nextfire.domain.ports.control import ControlStore, Lease, Takeover
from nextfire.domain.zones import release
from tests.builders import NOON, at, job_key
from tests.fakes import MemoryControlStore
from tests.integration.backends import DYNAMODB, MEMORY, SQLITE, on_dynamodb
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (ControlStore,)
DAY = timedelta(days=1)

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


@dataclass(frozen=True)
class Table:
    """The table behind a store, for writing items that no watcher writes."""

    store: ControlStore
    name: str = ""
    database: Database | None = None

    def spoil_lease(self, group: int, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryControlStore):
            self.store.spoil_lease(group)
        else:
            self._put(f"lease#{group}", values)

    def spoil_cursor(self, shard: int, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryControlStore):
            self.store.spoil_cursor(shard)
        else:
            self._put(f"cursor#{shard}", values)

    def spoil_taken(self, tenant: str, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryControlStore):
            self.store.spoil_taken(tenant)
        else:
            self._put(f"runs#{tenant}", values)

    def _put(self, item_id: str, values: Mapping[str, object]) -> None:
        if self.database is not None:
            put(self.database, CONTROL, id=item_id, **values)
            return
        dynamodb().put_item(TableName=self.name, Item=to_item({"id": item_id, **values}))


@pytest.fixture(params=(MEMORY, SQLITE, *DYNAMODB))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(backend: str, request: pytest.FixtureRequest) -> Table:
    if backend == MEMORY:
        return Table(MemoryControlStore())
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return Table(SqliteControlStore(database), database=database)
    name = request.getfixturevalue("tables").control
    return Table(DynamoDbControlStore(dynamodb(), table=name), name)


@pytest.fixture
def store(table: Table) -> ControlStore:
    return table.store


def test_a_group_without_a_lease_has_none(store: ControlStore) -> None:
    assert store.lease(0) is None


def test_a_lease_is_kept_for_each_group(store: ControlStore) -> None:
    first, second = Lease("a", 1, 0), Lease("b", 7, 3, released=True)

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
    store.seed_cursors(3, at("11:30"))

    assert store.cursors(range(9)) == {0: NOON, 1: at("12:05"), 2: at("11:30")}
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


AUDITS = [
    Audit(NOON),
    Audit(NOON, since=at("11:00"), after=job_key()),
    Audit(NOON, since=at("11:00"), done=True),
    Audit(NOON, zones="2026a", zones_since=at("10:00")),
]


def test_there_is_no_audit_at_first(store: ControlStore) -> None:
    assert store.audit() is None


def test_parts_of_an_audit_are_kept_apart_from_it(store: ControlStore) -> None:
    whole = Audit(NOON, after=job_key("job1"))
    part = Audit(NOON, NOON, after=job_key("job1"), end=job_key("job9"))
    assert store.replace_audit(None, whole)
    assert store.audit(0) is None
    assert store.replace_audit(None, part, 0)
    assert not store.replace_audit(None, whole, 0)

    assert (store.audit(), store.audit(0), store.audit(1)) == (whole, part, None)
    assert store.replace_audit(part, part.moved(None), 0)
    assert store.audit(0) == part.moved(None)


def test_an_audit_is_kept_as_it_is(store: ControlStore) -> None:
    was = None
    for audit in AUDITS:
        assert store.replace_audit(was, audit)
        assert store.audit() == audit
        was = audit


@pytest.mark.parametrize("there", AUDITS)
def test_only_the_audit_that_is_stored_can_be_replaced(store: ControlStore, there: Audit) -> None:
    store.replace_audit(None, there)
    to = Audit(at("13:00"))

    for was in (None, *AUDITS):
        if was != there:
            assert not store.replace_audit(was, to)
    assert store.audit() == there
    assert store.replace_audit(there, to)
    assert store.replace_audit(there, to), "a repetition finds its own success"
    assert store.audit() == to


@pytest.mark.parametrize("was", [None, AUDITS[0]], ids=["first", "next"])
def test_of_twenty_concurrent_auditors_one_goes_on(store: ControlStore, was: Audit | None) -> None:
    if was is not None:
        store.replace_audit(None, was)
    audits = [Audit(at("13:00"), after=job_key(f"job{n}")) for n in range(20)]

    with ThreadPoolExecutor(20) as threads:
        won = list(threads.map(lambda audit: store.replace_audit(was, audit), audits))

    assert won.count(True) == 1
    assert store.audit() == audits[won.index(True)]


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

    def test_a_cursor_of_the_future_would_read_nothing_and_is_seeded_anew(
        self, table: Table
    ) -> None:
        table.store.seed_cursors(2, NOON)
        table.store.move_cursor(0, at("12:59"), epoch=1)
        table.store.move_cursor(1, at("13:01"), epoch=1)

        table.store.seed_cursors(2, NOON)

        assert table.store.cursors(range(2)) == {0: at("12:59"), 1: NOON - DAY}

    def test_a_holder_that_knows_better_mends_a_broken_cursor(
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
def test_a_cursor_moved_while_it_is_seeded_anew_stays(tables: Any) -> None:
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
def test_an_item_whose_id_names_no_shard_is_nobodys(tables: Any) -> None:
    client = dynamodb()
    for item_id in ("cursor#x", "cursor#", "cursor#-1", "lease#x", "other"):
        client.put_item(TableName=tables.control, Item=to_item({"id": item_id, "minute": "x"}))
    store = DynamoDbControlStore(client, table=tables.control)

    store.seed_cursors(2, NOON)

    assert store.cursors(range(2)) == {0: NOON, 1: NOON}
    assert store.lease(0) is None


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


@on_dynamodb
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"started_at": "noon", "done": True},
        {"started_at": "2026-05-24T12:00:00Z", "done": "yes"},
        {"started_at": "2026-05-24T12:00:00Z", "done": False, "tenant": "acme"},
        {"started_at": "2026-05-24T12:00:00Z", "done": False, "tenant": 5, "job_id": "x"},
    ],
)
def test_an_audit_that_does_not_decode_is_over_and_is_replaced_by_one_who_has_seen_it(
    tables: Any, values: Mapping[str, object]
) -> None:
    client = dynamodb()
    client.put_item(TableName=tables.control, Item=to_item({"id": "audit", **values}))
    store = DynamoDbControlStore(client, table=tables.control)

    seen = store.audit()

    assert seen is not None
    assert seen.done
    following = next_audit(seen, NOON, DAY, restart=False)
    assert following == Audit(NOON, seen.started_at, zones=release(), zones_since=NOON)
    assert not store.replace_audit(None, AUDITS[0])
    assert not store.replace_audit(AUDITS[0], AUDITS[1])
    assert store.replace_audit(seen, AUDITS[0])
    assert not store.replace_audit(seen, AUDITS[1])
    assert store.audit() == AUDITS[0]


# Runs per minute


BROKEN_TAKEN: Mapping[str, Mapping[str, object]] = {
    "nothing but its id": {},
    "no count": {"minute": "2026-05-24T12:00:00Z"},
    "no minute": {"taken": 3},
    "count a text": {"minute": "2026-05-24T12:00:00Z", "taken": "3"},
    "count below zero": {"minute": "2026-05-24T12:00:00Z", "taken": -1},
    "minute no instant": {"minute": "2026-05-24T12:00:30 or so", "taken": 5},
    "minute a number": {"minute": 1779624000, "taken": 5},
    "minute after our time": {"minute": "9999-12-31T23:59:00Z", "taken": 5},
}


def test_runs_are_taken_until_there_are_none(store: ControlStore) -> None:
    taken = [store.take_runs("acme", NOON, wanted, 10) for wanted in (4, 5, 3, 1)]

    assert taken == [4, 5, 1, 0]
    assert store.taken_runs("acme", NOON) == 10
    assert store.taken_runs("other", NOON) == 0
    assert store.take_runs("other", NOON, 20, 10) == 10, "each tenant has its own count"


def test_each_minute_has_its_own_runs(store: ControlStore) -> None:
    taken = [
        store.take_runs("acme", NOON + minute * timedelta(minutes=1), 3, 4) for minute in (0, 0, 1)
    ]

    assert taken == [3, 1, 3]
    assert [store.taken_runs("acme", at(minute)) for minute in ("12:01", "12:02")] == [3, 0]


def test_a_clock_that_is_behind_takes_of_the_later_minute(store: ControlStore) -> None:
    store.take_runs("acme", at("12:01"), 3, 4)

    assert store.taken_runs("acme", NOON) == 3
    assert store.take_runs("acme", NOON, 3, 4) == 1
    assert store.take_runs("acme", at("12:01"), 3, 4) == 0


def test_what_a_clock_far_ahead_took_is_forgotten(store: ControlStore) -> None:
    store.take_runs("acme", at("18:00"), 4, 4)

    assert store.taken_runs("acme", NOON) == 0
    assert store.take_runs("acme", NOON, 3, 4) == 3


def test_a_quota_that_is_lower_now_holds_at_once(store: ControlStore) -> None:
    store.take_runs("acme", NOON, 8, 10)

    assert store.take_runs("acme", NOON, 1, 5) == 0
    assert store.take_runs("acme", NOON, 5, 10) == 2


@pytest.mark.parametrize("round_", ROUNDS)
def test_of_many_that_take_at_once_all_together_have_no_more(
    store: ControlStore, round_: int
) -> None:
    minute = NOON + round_ * timedelta(minutes=2)

    taken = at_once(*(partial(store.take_runs, "acme", minute, 3, 7) for _ in range(4)))

    assert sum(taken) == 7


@pytest.mark.parametrize("form", BROKEN_TAKEN)
def test_a_count_that_does_not_decode_is_begun_anew(table: Table, form: str) -> None:
    table.store.take_runs("acme", NOON, 5, 5)
    table.spoil_taken("acme", BROKEN_TAKEN[form])

    assert table.store.taken_runs("acme", NOON) == 0
    assert table.store.take_runs("acme", NOON, 3, 5) == 3
    assert table.store.take_runs("acme", NOON, 3, 5) == 2
