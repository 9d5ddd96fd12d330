"""The contract of `KeyStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.adapters.sqlite.database import Database
from nextfire.adapters.sqlite.key_store import SqliteKeyStore
from nextfire.adapters.sqlite.table import KEYS
from nextfire.domain.errors import InvalidInputError, UndecodableError
from nextfire.domain.keys import KEPT, ApiKey, Scope
from nextfire.domain.ports.access import KeyStore
from tests.builders import NOON, a_key, at
from tests.fakes import MemoryKeyStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_dynamodb, on_each
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (KeyStore,)
DAY = timedelta(days=1)
IDS = [f"{number:016x}" for number in range(5)]

# Item forms that no process writes. The fake has one form for all of them.
BROKEN: Mapping[str, Mapping[str, object]] = {
    "nothing but its key": {},
    "no hash": {"hash": None},
    "a short hash": {"hash": "abc"},
    "hash a number": {"hash": 1},
    "an unknown scope": {"scopes": ["read", "root"]},
    "scopes a number": {"scopes": 1},
    "expiry no instant": {"expires_at": "never"},
    "expiry without offset": {"expires_at": "2026-05-24T12:00:00"},
    "revoked at no time": {"revoked_at": True},
}


@dataclass(frozen=True)
class Table:
    """The table behind a store, for writing items that no process writes."""

    store: KeyStore
    name: str = ""
    database: Database | None = None

    def spoil(self, key: ApiKey, values: Mapping[str, object]) -> None:
        if isinstance(self.store, MemoryKeyStore):
            self.store.create(key)
            self.store.spoil(key.tenant, key.key_id)
            return
        sound = {
            "name": key.name,
            "hash": key.digest,
            "scopes": ["write"],
            "created_at": "2026-05-24T12:00:00Z",
            "expires_at": "2026-08-22T12:00:00.000Z",
        }
        item = {
            "tenant": key.tenant,
            "key_id": key.key_id,
            **({**sound, **values} if values else {}),
        }
        if self.database is not None:
            put(self.database, KEYS, **item)
            return
        dynamodb().put_item(TableName=self.name, Item=to_item(item))


backend = on_each(*STORES)


@pytest.fixture
def table(backend: str, request: pytest.FixtureRequest) -> Table:
    if backend == MEMORY:
        return Table(MemoryKeyStore())
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return Table(SqliteKeyStore(database), database=database)
    name = request.getfixturevalue("tables").keys
    return Table(DynamoDbKeyStore(dynamodb(), table=name), name)


@pytest.fixture
def store(table: Table) -> KeyStore:
    return table.store


def test_a_key_is_found_as_it_was_stored(store: KeyStore) -> None:
    key = a_key(IDS[1], Scope.READ, Scope.ADMIN, name="Zoë's laptop", since=at("12:00:00.123"))

    assert store.create(key)

    assert store.get("acme", IDS[1]) == key


def test_all_that_a_key_can_have_is_kept(store: KeyStore) -> None:
    key = replace(a_key(), revoked_at=at("13:00"), last_used_on=date(2026, 5, 23))

    assert store.create(key)

    assert store.get("acme", key.key_id) == key


def test_a_key_is_its_tenants_alone(store: KeyStore) -> None:
    store.create(a_key(IDS[0]))
    theirs = a_key(IDS[0], tenant="other", name="theirs")

    assert store.get("other", IDS[0]) is None
    assert store.create(theirs), "ids are unique per tenant"
    assert store.revoke("nobody", IDS[0], NOON) is None

    assert store.get("acme", IDS[0]) == a_key(IDS[0])
    assert store.get("other", IDS[0]) == theirs


def test_no_key_takes_the_place_of_another(store: KeyStore) -> None:
    first, second = a_key(IDS[0]), a_key(IDS[0], name="another")
    store.create(first)

    assert not store.create(second)
    assert store.create(first), "a repeated request succeeds"

    assert store.get("acme", IDS[0]) == first


@pytest.mark.parametrize("_", ROUNDS)
def test_of_keys_made_at_once_under_one_id_one_is_stored(store: KeyStore, _: int) -> None:
    made = [a_key(IDS[0], name=f"number {number}") for number in range(4)]

    stored = at_once(*(lambda key=key: store.create(key) for key in made))

    assert sorted(stored) == [False, False, False, True]
    assert store.get("acme", IDS[0]) == made[stored.index(True)]


def test_a_tenants_keys_are_listed_by_id_page_by_page(store: KeyStore) -> None:
    for key_id in reversed(IDS):
        store.create(a_key(key_id))
    store.create(a_key("ffffffffffffffff", tenant="other"))
    store.revoke("acme", IDS[2], NOON)

    first = store.list("acme", cursor=None, limit=3)
    assert [key.key_id for key in first.items] == IDS[:3]
    assert first.items[2].revoked_at == NOON
    second = store.list("acme", cursor=first.cursor, limit=3)
    assert [key.key_id for key in second.items] == IDS[3:]
    assert second.cursor is None
    assert store.list("no-tenant", cursor=None, limit=3).items == []


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "YWNtZQ", "🦊"])
def test_what_is_no_cursor_is_refused(store: KeyStore, cursor: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        store.list("acme", cursor=cursor, limit=3)

    assert refusal.value.field == "cursor"


def test_a_key_is_revoked_once(store: KeyStore) -> None:
    key = a_key()
    store.create(key)

    first = store.revoke("acme", key.key_id, at("13:00"))
    again = store.revoke("acme", key.key_id, at("14:00"))

    assert first == again == store.get("acme", key.key_id)
    assert first == replace(key, revoked_at=at("13:00"))


def test_what_is_not_there_is_not_made_by_changing_it(store: KeyStore) -> None:
    assert store.revoke("acme", IDS[0], NOON) is None
    assert store.end("acme", IDS[0], NOON) is None
    store.note_use("acme", IDS[0], NOON.date())

    assert store.get("acme", IDS[0]) is None


@pytest.mark.parametrize("ends_at", [NOON + DAY, at("12:00:00.001"), at("12:00:01")])
def test_a_key_ends_sooner_and_never_later(store: KeyStore, ends_at: datetime) -> None:
    key = a_key(life=2 * DAY)
    store.create(key)

    sooner = store.end("acme", key.key_id, ends_at)
    assert sooner == replace(key, expires_at=ends_at, issued_until=key.expires_at)
    assert sooner.life == key.life
    assert store.end("acme", key.key_id, key.expires_at) == sooner
    assert store.get("acme", key.key_id) == sooner
    soonest = store.end("acme", key.key_id, ends_at - timedelta(minutes=1))
    assert soonest == replace(sooner, expires_at=ends_at - timedelta(minutes=1))


def test_the_day_of_use_only_moves_on(store: KeyStore) -> None:
    key = a_key()
    store.create(key)
    today, tomorrow = NOON.date(), NOON.date() + DAY

    def noted() -> date | None:
        stored = store.get("acme", key.key_id)
        assert stored is not None
        assert stored == replace(key, last_used_on=stored.last_used_on)
        return stored.last_used_on

    store.note_use("acme", key.key_id, today)
    assert noted() == today
    store.note_use("acme", key.key_id, tomorrow)
    assert noted() == tomorrow
    store.note_use("acme", key.key_id, today)
    assert noted() == tomorrow


@pytest.mark.parametrize("values", BROKEN.values(), ids=BROKEN.keys())
def test_an_undecodable_key_is_listed_as_such(table: Table, values: Mapping[str, object]) -> None:
    broken = a_key(IDS[1])
    table.store.create(a_key(IDS[0]))
    table.spoil(broken, values)

    with pytest.raises(UndecodableError) as raised:
        table.store.get("acme", IDS[1])
    page = table.store.list("acme", cursor=None, limit=9)

    assert [key.key_id for key in page.items] == [IDS[0]]
    assert [found.identity for found in page.unreadable] == [IDS[1]]
    assert broken.digest not in str(raised.value)


@on_dynamodb
def test_an_unreadable_day_of_use_does_not_reject_the_key(table: Table) -> None:
    table.spoil(a_key(), {"last_used_on": "yesterday"})

    assert table.store.get("acme", a_key().key_id) == a_key()


@on_dynamodb
def test_an_item_removes_itself_after_its_key_has_expired(table: Table) -> None:
    key = a_key()
    table.store.create(key)
    kept = dynamodb().get_item(
        TableName=table.name,
        Key={"tenant": {"S": "acme"}, "key_id": {"S": key.key_id}},
    )["Item"]

    assert kept["forget_at"] == {"N": str(int((key.expires_at + KEPT).timestamp()))}


@on_dynamodb
def test_no_secret_is_in_the_table(table: Table) -> None:
    table.store.create(a_key())

    [item] = dynamodb().scan(TableName=table.name)["Items"]
    assert set(item) == {
        "tenant", "key_id", "name", "hash", "scopes", "created_at", "expires_at", "forget_at",
    }  # fmt: skip
