"""The contract of `BucketStore`, on the fake, in SQLite and on every emulator of DynamoDB."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from nextfire.adapters.aws.clients import dynamodb
from nextfire.adapters.dynamodb.bucket_store import DynamoDbBucketStore
from nextfire.adapters.dynamodb.request_store import DynamoDbRequestStore
from nextfire.adapters.sqlite.bucket_store import SqliteBucketStore
from nextfire.adapters.sqlite.database import Database
from nextfire.domain.ports.requests import BucketStore
from nextfire.domain.request_limits import RequestLimit
from tests.builders import NOON
from tests.fakes import MemoryBucketStore
from tests.integration.backends import MEMORY, SQLITE, STORES, on_dynamodb, on_each
from tests.integration.deployment import Proxy
from tests.integration.races import ROUNDS, at_once
from tests.integration.sqlite_file import another_process

CONTRACT_OF = (BucketStore,)
SECOND = timedelta(seconds=1)
LIMIT = RequestLimit(10, 20)


backend = on_each(*STORES)


@pytest.fixture
def table(backend: str, request: pytest.FixtureRequest) -> str:
    local = backend in {MEMORY, SQLITE}
    return "" if local else str(request.getfixturevalue("tables").requests)


@pytest.fixture
def process(backend: str, table: str, request: pytest.FixtureRequest) -> Callable[[], BucketStore]:
    """Returns the store as seen by another process on each call."""
    if backend == MEMORY:
        shared = MemoryBucketStore()
        return lambda: shared
    if backend == SQLITE:
        database = request.getfixturevalue("database")
        return lambda: SqliteBucketStore(another_process(database))
    return lambda: DynamoDbBucketStore(dynamodb(), table=table)


@pytest.fixture
def stores(process: Callable[[], BucketStore]) -> list[BucketStore]:
    """The store as seen by two processes."""
    return [process() for _ in range(2)]


def test_a_bucket_holds_its_burst_and_is_refilled(stores: list[BucketStore]) -> None:
    store, other = stores
    assert store.take("t", LIMIT, 15, NOON).tokens == 15
    assert other.take("t", LIMIT, 15, NOON).tokens == 5, "the remaining tokens"
    empty = store.take("t", LIMIT, 15, NOON)
    assert (empty.tokens, empty.wait) == (0, SECOND / 10)
    assert other.take("t", LIMIT, 15, NOON + SECOND / 2).tokens == 5
    assert store.take("t", LIMIT, 15, NOON + SECOND / 2).tokens == 0
    assert store.take("t", LIMIT, 30, NOON + 60 * SECOND).tokens == 20, "never more than the burst"
    assert other.take("t", LIMIT, 30, NOON + 60 * SECOND).tokens == 0


def test_each_name_has_its_own_bucket(stores: list[BucketStore]) -> None:
    assert [stores[0].take(name, LIMIT, 20, NOON).tokens for name in "ab"] == [20, 20]


def test_a_clock_that_is_behind_takes_nothing_twice(stores: list[BucketStore]) -> None:
    store, other = stores
    assert store.take("t", LIMIT, 20, NOON).tokens == 20
    assert other.take("t", LIMIT, 1, NOON - SECOND).tokens == 0


def test_a_state_of_another_limit_is_replaced_once(stores: list[BucketStore]) -> None:
    former = RequestLimit(1, 100_000)
    for store in stores:
        assert store.take("t", former, 50_000, NOON).tokens == 50_000
    assert stores[0].take("t", LIMIT, 15, NOON).tokens == 15
    assert stores[1].take("t", LIMIT, 15, NOON).tokens == 5
    assert [store.take("t", LIMIT, 1, NOON).tokens for store in stores] == [0, 0]


def test_of_many_at_once_none_gets_anothers_token(process: Callable[[], BucketStore]) -> None:
    for number in ROUNDS:
        processes = [process() for _ in range(8)]
        name = f"race {number}"
        taken = at_once(*(partial(each.take, name, LIMIT, 5, NOON) for each in processes[:4]))
        taken += [each.take(name, LIMIT, 5, NOON) for each in processes[4:]]

        assert sum(each.tokens for each in taken) == 20


@on_dynamodb
def test_an_empty_bucket_is_not_written(table: str) -> None:
    proxy = Proxy(dynamodb())
    store = DynamoDbBucketStore(proxy, table=table)  # type: ignore[arg-type]
    assert store.take("t", LIMIT, 20, NOON).tokens == 20
    before = len(proxy.calls)

    assert [store.take("t", LIMIT, 1, NOON).tokens for _ in range(5)] == [0] * 5
    assert len(proxy.calls) == before


@on_dynamodb
def test_a_bucket_that_others_emptied_is_not_written_twice(table: str) -> None:
    proxy = Proxy(dynamodb())
    store = DynamoDbBucketStore(proxy, table=table)  # type: ignore[arg-type]
    assert store.take("t", LIMIT, 1, NOON).tokens == 1
    assert DynamoDbBucketStore(dynamodb(), table=table).take("t", LIMIT, 20, NOON).tokens == 19
    before = len(proxy.calls)

    assert [store.take("t", LIMIT, 1, NOON).tokens for _ in range(5)] == [0] * 5
    assert len(proxy.calls) == before + 1


def test_an_empty_bucket_is_not_written_to_disk(database: Database) -> None:
    store = SqliteBucketStore(database)
    assert store.take("t", LIMIT, 20, NOON).tokens == 20
    before = database.version()

    assert store.take("t", LIMIT, 1, NOON).tokens == 0
    assert database.version() == before
    assert store.take("t", LIMIT, 1, NOON + SECOND).tokens == 1
    assert database.version() != before


@on_dynamodb
def test_no_idempotency_key_reaches_a_bucket(table: str) -> None:
    DynamoDbBucketStore(dynamodb(), table=table).take("tenant#acme", LIMIT, 1, NOON)
    requests = DynamoDbRequestStore(dynamodb(), table=table)

    for tenant, key in (("acme", "tenant#acme"), ("tenant", "acme"), ("acme", "#tenant#acme")):
        assert requests.begin(tenant, key, "f", NOON) is None
