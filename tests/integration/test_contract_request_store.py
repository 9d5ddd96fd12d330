"""The contract of `RequestStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.adapters.sqlite.request_store import SqliteRequestStore
from nextfire.adapters.sqlite.table import REQUESTS
from nextfire.domain.errors import UndecodableError
from nextfire.domain.ports.requests import REQUESTS_KEPT, KeptRequest, RequestStore
from tests.builders import NOON
from tests.fakes import MemoryRequestStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_each
from tests.integration.races import at_once
from tests.integration.sqlite_file import put

CONTRACT_OF = (RequestStore,)
SECOND = timedelta(seconds=1)


backend = on_each(*STORES)


@pytest.fixture
def table(backend: str, request: pytest.FixtureRequest) -> str:
    local = backend in {MEMORY, SQLITE}
    return "" if local else str(request.getfixturevalue("tables").requests)


@pytest.fixture
def store(table: str, backend: str, request: pytest.FixtureRequest) -> RequestStore:
    if backend == SQLITE:
        return SqliteRequestStore(request.getfixturevalue("database"))
    return DynamoDbRequestStore(dynamodb(), table=table) if table else MemoryRequestStore()


@pytest.fixture
def spoil(
    store: RequestStore, table: str, request: pytest.FixtureRequest
) -> Callable[[str, str], None]:
    """Store a request that does not decode."""
    if isinstance(store, MemoryRequestStore):
        return store.spoil

    later = int((NOON + REQUESTS_KEPT).timestamp())

    def damage(tenant: str, key: str) -> None:
        item = {"request": {"S": f"{tenant}#{key}"}, "expires_at": {"N": str(later)}}
        dynamodb().put_item(TableName=table, Item=item)

    def damage_row(tenant: str, key: str) -> None:
        database = request.getfixturevalue("database")
        put(database, REQUESTS, request=f"{tenant}#{key}", expires_at=later)

    return damage if table else damage_row


def test_the_first_request_is_kept_and_the_others_find_it(store: RequestStore) -> None:
    assert store.begin("acme", "k", "f", NOON) is None
    assert store.begin("acme", "k", "g", NOON + SECOND) == KeptRequest("f", NOON, None)


def test_a_key_is_of_its_tenant(store: RequestStore) -> None:
    assert store.begin("acme", "k", "f", NOON) is None
    assert store.begin("bolt", "k", "f", NOON) is None
    assert store.begin("acme", "l", "f", NOON) is None


def test_the_first_answer_stays(store: RequestStore) -> None:
    store.begin("acme", "k", "f", NOON)

    assert store.finish("acme", "k", NOON, "one") == "one"
    assert store.finish("acme", "k", NOON, "two") == "one"
    assert store.begin("acme", "k", "f", NOON + SECOND) == KeptRequest("f", NOON, "one")


def test_after_a_day_a_key_is_free(store: RequestStore) -> None:
    store.begin("acme", "k", "f", NOON)
    store.finish("acme", "k", NOON, "one")

    assert store.begin("acme", "k", "f", NOON + REQUESTS_KEPT - SECOND) is not None
    assert store.begin("acme", "k", "g", NOON + REQUESTS_KEPT) is None
    assert store.finish("acme", "k", NOON, "late") == "late", "that request has expired"
    later = NOON + REQUESTS_KEPT + SECOND
    assert store.begin("acme", "k", "g", later) == KeptRequest("g", NOON + REQUESTS_KEPT, None)


def test_a_refusal_is_kept_with_its_request(store: RequestStore) -> None:
    store.begin("acme", "k", "f", NOON)

    store.refuse("acme", "k", NOON)
    store.refuse("acme", "k", NOON)
    store.refuse("acme", "k", NOON - SECOND)
    store.refuse("acme", "nobodys", NOON)

    kept = store.begin("acme", "k", "f", NOON + SECOND)
    assert kept == KeptRequest("f", NOON, None, refused=True)
    assert store.begin("acme", "nobodys", "f", NOON) is None
    assert store.finish("acme", "k", NOON, "one") == "one", "it may still be executed"


def test_an_answered_request_is_not_refused(store: RequestStore) -> None:
    store.begin("acme", "k", "f", NOON)
    assert store.refuse("acme", "k", NOON) is None
    store.finish("acme", "k", NOON, "one")

    assert store.refuse("acme", "k", NOON) == "one"
    assert store.refuse("acme", "k", NOON - SECOND) is None

    store.begin("acme", "l", "f", NOON)
    store.finish("acme", "l", NOON, "two")
    assert store.refuse("acme", "l", NOON) == "two"
    assert store.begin("acme", "l", "f", NOON) == KeptRequest("f", NOON, "two")


def test_a_restarted_request_keeps_no_old_rejection(store: RequestStore) -> None:
    store.begin("acme", "k", "f", NOON)
    store.begin("acme", "k", "f", NOON + REQUESTS_KEPT)

    store.refuse("acme", "k", NOON)

    later = NOON + REQUESTS_KEPT
    assert store.begin("acme", "k", "f", later) == KeptRequest("f", later, None)


def test_of_twenty_at_once_one_is_the_first(store: RequestStore) -> None:
    found = at_once(*[partial(store.begin, "acme", "k", str(n), NOON) for n in range(20)])

    assert found.count(None) == 1
    assert len({each for each in found if each is not None}) == 1


def test_what_does_not_decode_is_reported(
    store: RequestStore, spoil: Callable[[str, str], None]
) -> None:
    spoil("acme", "k")

    with pytest.raises(UndecodableError):
        store.begin("acme", "k", "f", NOON)


def test_what_does_not_decode_gets_no_answer(
    store: RequestStore, spoil: Callable[[str, str], None]
) -> None:
    """The request has taken effect: its response is sent."""
    spoil("acme", "k")

    assert store.finish("acme", "k", NOON, "answer") == "answer"
    assert store.refuse("acme", "k", NOON) is None
