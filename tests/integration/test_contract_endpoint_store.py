"""The contract of `EndpointStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.endpoint_items import KEPT
from nextfire.adapters.dynamodb.endpoint_store import DynamoDbEndpointStore
from nextfire.adapters.dynamodb.flow_items import decode_flow
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.endpoint_store import SqliteEndpointStore
from nextfire.adapters.sqlite.table import ENDPOINTS
from nextfire.domain.call_flow import CallFlow
from nextfire.domain.call_limit import CallLimit
from nextfire.domain.endpoints import Endpoint, EndpointKey, EndpointState, limited, paused, resumed
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.ports.endpoints import EndpointStore
from tests.builders import NOON, at
from tests.fakes import MemoryEndpointStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_dynamodb, on_each
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (EndpointStore,)
HOSTS = [f"host-{number}.example.com:443" for number in range(5)]
KEY = EndpointKey("calls", "acme", HOSTS[0])
NEW = Endpoint(KEY)
FIRST = Endpoint(KEY, failures=1, changed_at=NOON, version=1)

# Item forms that no process writes. The fake has one form for all of them.
BROKEN: Mapping[str, Mapping[str, object]] = {
    "nothing but its key": {},
    "an unknown state": {"state": "HALF_OPEN"},
    "no version": {"version": None},
    "version 0": {"version": 0},
    "failures a text": {"failures": "many"},
    "failures negative": {"failures": -1},
    "probes negative": {"failed_probes": -1},
    "opened at no instant": {"opened_at": "never"},
    "probe at a text": {"probe_at": "2026-05-24T12:00:00Z"},
    "a limit of no calls": {"per_minute": 0},
    "a limit of too many calls": {"parallel": 101},
    "a limit a text": {"parallel": "many"},
}
BROKEN_FLOWS: Mapping[str, Mapping[str, object]] = {
    "no version": {"version": None},
    "version 0": {"version": 0},
    "usual duration negative": {"usual": -1},
    "places that are none": {"places": "x"},
    "a limit a text": {"per_minute": "many"},
}


@dataclass(frozen=True)
class Table:
    """The table behind a store, for writing items that no process writes."""

    store: EndpointStore
    name: str = ""
    database: Database | None = None

    def spoil(self, key: EndpointKey, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryEndpointStore):
            self.store.replace(Endpoint(key), Endpoint(key, version=1))
            self.store.spoil(key)
            return
        sound = {"state": "CLOSED", "changed_at": "2026-05-24T12:00:00Z", "version": 1}
        item = {
            "owner": f"{key.pool}/{key.tenant}",
            "destination": key.destination,
            **({**sound, **values} if values else {}),
        }
        if self.database is not None:
            put(self.database, ENDPOINTS, **item)
            return
        dynamodb().put_item(TableName=self.name, Item=to_item(item))


backend = on_each(*STORES)


@pytest.fixture
def table(backend: str, request: pytest.FixtureRequest) -> Table:
    if backend == MEMORY:
        return Table(MemoryEndpointStore())
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return Table(SqliteEndpointStore(database), database=database)
    name = request.getfixturevalue("tables").endpoints
    return Table(DynamoDbEndpointStore(dynamodb(), table=name), name)


@pytest.fixture
def store(table: Table) -> EndpointStore:
    return table.store


def test_all_that_an_endpoint_can_have_is_kept(store: EndpointStore) -> None:
    endpoint = Endpoint(
        KEY,
        state=EndpointState.OPEN,
        failures=5,
        opened_at=at("12:00:00.123"),
        probe_at=at("12:00:30.123"),
        failed_probes=3,
        not_before=at("12:00:10.5"),
        pause_reason="Zoë's maintenance",
        paused_at=at("11:00"),
        changed_at=at("12:00:00.123"),
        version=7,
    )

    assert store.replace(NEW, endpoint)

    assert store.get(KEY, consistent=True) == endpoint
    assert store.get(KEY) in {endpoint, None}, "the read may be eventually consistent"


def test_an_endpoint_with_defaults_is_kept(store: EndpointStore) -> None:
    endpoint = Endpoint(KEY, changed_at=NOON, version=1)

    assert store.replace(NEW, endpoint)

    assert store.get(KEY, consistent=True) == endpoint


def test_attributes_of_an_earlier_state_are_removed(store: EndpointStore) -> None:
    stored = paused(NEW, "maintenance", NOON)
    store.replace(NEW, stored)
    closed = resumed(stored, at("13:00"))

    assert store.replace(stored, closed)

    assert store.get(KEY, consistent=True) == closed


def test_an_endpoint_belongs_to_one_pool_and_tenant(store: EndpointStore) -> None:
    others = [KEY._replace(tenant="other"), KEY._replace(pool="other")]
    store.replace(NEW, FIRST)

    for key in others:
        assert store.get(key, consistent=True) is None
        theirs = replace(FIRST, key=key, failures=4)
        assert store.replace(Endpoint(key), theirs)
        assert store.get(key, consistent=True) == theirs
    assert store.get(KEY, consistent=True) == FIRST
    assert store.list("acme", "calls", cursor=None, limit=9).items == [FIRST]


def test_a_write_needs_the_latest_version(store: EndpointStore) -> None:
    second = replace(FIRST, failures=2, version=2)
    assert store.replace(NEW, FIRST)

    assert not store.replace(NEW, replace(FIRST, failures=4)), "it is stored already"
    assert store.replace(FIRST, second)
    assert not store.replace(FIRST, replace(second, failures=4))
    assert not store.replace(replace(second, version=3), replace(second, version=4))

    assert store.get(KEY, consistent=True) == second


def test_the_same_write_succeeds_once(store: EndpointStore) -> None:
    assert store.replace(NEW, FIRST)

    assert not store.replace(NEW, FIRST), "only one run is the probe"


def test_what_is_not_stored_is_not_replaced(store: EndpointStore) -> None:
    assert not store.replace(FIRST, replace(FIRST, version=2))

    assert store.get(KEY, consistent=True) is None


@pytest.mark.parametrize("_", ROUNDS)
@pytest.mark.parametrize("was", [NEW, FIRST], ids=["new", "stored"])
def test_of_concurrent_writes_one_succeeds(store: EndpointStore, was: Endpoint, _: int) -> None:
    if was.version:
        store.replace(NEW, was)
    made = [replace(FIRST, failures=n, version=was.version + 1) for n in range(4)]

    stored = at_once(*(lambda to=to: store.replace(was, to) for to in made))

    assert sorted(stored) == [False, False, False, True]
    assert store.get(KEY, consistent=True) == made[stored.index(True)]


@pytest.mark.parametrize("limit", [CallLimit(60), CallLimit(None, 100), CallLimit(6000, 1)])
def test_a_limit_is_kept(store: EndpointStore, limit: CallLimit) -> None:
    endpoint = limited(NEW, limit, NOON)

    assert store.replace(NEW, endpoint)

    assert store.get(KEY, consistent=True) == endpoint


def test_the_flow_of_calls_is_kept_next_to_the_endpoint(store: EndpointStore) -> None:
    new = CallFlow(KEY)
    flow = CallFlow(
        KEY,
        free_at=at("12:00:00.000001"),
        line_at=at("12:00:59.999999"),
        places={"0a1b2c3d": at("12:01:00.123"), "ff": at("12:02")},
        usual=timedelta(microseconds=10_001),
        version=1,
    )
    store.replace(NEW, FIRST)
    assert store.flow(KEY) is None

    assert store.replace_flow(new, flow)
    assert not store.replace_flow(new, replace(flow, places={}))
    assert store.flow(KEY) == flow
    empty = CallFlow(KEY, version=2)
    assert store.replace_flow(flow, empty)
    assert store.flow(KEY) == empty
    assert store.list("acme", "calls", cursor=None, limit=9).items == [FIRST]


@pytest.mark.parametrize("_", ROUNDS)
def test_of_concurrent_writes_of_a_flow_one_succeeds(store: EndpointStore, _: int) -> None:
    made = [CallFlow(KEY, usual=timedelta(seconds=n), version=1) for n in range(4)]

    stored = at_once(*(lambda to=to: store.replace_flow(CallFlow(KEY), to) for to in made))

    assert sorted(stored) == [False, False, False, True]
    assert store.flow(KEY) == made[stored.index(True)]


def test_endpoints_are_listed_by_destination_page_by_page(store: EndpointStore) -> None:
    for host in reversed(HOSTS):
        key = KEY._replace(destination=host)
        store.replace(Endpoint(key), replace(FIRST, key=key))

    first = store.list("acme", "calls", cursor=None, limit=3)
    assert [each.key.destination for each in first.items] == HOSTS[:3]
    second = store.list("acme", "calls", cursor=first.cursor, limit=3)
    assert [each.key.destination for each in second.items] == HOSTS[3:]
    assert second.cursor is None
    assert store.list("acme", "other", cursor=None, limit=3).items == []


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "YWNtZQ", "🦊"])
def test_an_invalid_cursor_is_rejected(store: EndpointStore, cursor: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        store.list("acme", "calls", cursor=cursor, limit=3)

    assert refusal.value.field == "cursor"


@pytest.mark.parametrize("values", BROKEN.values(), ids=BROKEN.keys())
def test_an_undecodable_endpoint_is_listed_as_such(
    table: Table, values: Mapping[str, object]
) -> None:
    broken = KEY._replace(destination=HOSTS[1])
    table.store.replace(NEW, FIRST)
    table.spoil(broken, values)

    with pytest.raises(UndecodableError):
        table.store.get(broken)
    page = table.store.list("acme", "calls", cursor=None, limit=9)

    assert page.items == [FIRST]
    assert [found.identity for found in page.unreadable] == [HOSTS[1]]


@pytest.mark.parametrize("values", BROKEN_FLOWS.values(), ids=BROKEN_FLOWS.keys())
def test_an_undecodable_flow_is_reported(values: Mapping[str, object]) -> None:
    sound = {"usual": 1_000_000, "version": 1}
    assert decode_flow(KEY, to_item(sound)) == CallFlow(KEY, version=1)

    with pytest.raises(UndecodableError):
        decode_flow(KEY, to_item({**sound, **values}))


def test_an_undecodable_endpoint_is_not_replaced_by_a_new_one(table: Table) -> None:
    table.spoil(KEY, BROKEN["no version"])

    assert not table.store.replace(NEW, FIRST)

    with pytest.raises(UndecodableError):
        table.store.get(KEY, consistent=True)


@on_dynamodb
def test_an_item_expires_unless_it_is_paused(table: Table) -> None:
    def expiry() -> object:
        key = {"owner": {"S": "calls/acme"}, "destination": {"S": KEY.destination}}
        item = dynamodb().get_item(TableName=table.name, Key=key, ConsistentRead=True)["Item"]
        return item.get("expires_at")

    table.store.replace(NEW, FIRST)
    assert expiry() == {"N": str(int((NOON + KEPT).timestamp()))}
    assert timedelta(days=30) == KEPT
    stored = paused(FIRST, "maintenance", NOON)
    table.store.replace(FIRST, stored)
    assert expiry() is None
    table.store.replace(stored, resumed(stored, NOON))
    assert expiry() is not None
