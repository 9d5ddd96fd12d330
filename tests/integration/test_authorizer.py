"""The authorizer function: its answers to the gateway, and that it never reveals a key."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from functions.authorizer import handler as authorizer
from nextfire.adapters.dynamodb.items import to_item
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.errors import UnavailableError
from nextfire.domain.key_text import write_key
from nextfire.domain.keys import Minted, Scope, mint
from nextfire.usecases.manage_keys import RecordKeyUse
from tests.builders import NOON, a_key, at
from tests.fakes import Clock, Faults, InlineExecutor, MemoryKeyStore
from tests.integration.deployment import Context

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.integration.tables import Tables

DAY = timedelta(days=1)
REFUSED = {"isAuthorized": False}
KEY_ID = "00000000000000aa"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOON)
    monkeypatch.setattr(authorizer, "clock", clock)
    return clock


@pytest.fixture
def store(
    tables: Tables, dynamodb: DynamoDBClient, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DynamoDbKeyStore]:
    del clock
    monkeypatch.setenv("NEXTFIRE_KEYS_TABLE", tables.keys)
    authorizer.services.cache_clear()
    yield DynamoDbKeyStore(dynamodb, table=tables.keys)
    authorizer.services.cache_clear()


class Log(io.StringIO):
    """All log output of the function, at the most verbose level."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log = Log()
    monkeypatch.setattr(authorizer.logger.registered_handler, "stream", log)
    level = authorizer.logger.log_level
    authorizer.logger.setLevel("DEBUG")
    yield log
    authorizer.logger.setLevel(level)


def minted(*scopes: Scope, life: timedelta = 30 * DAY) -> Minted:
    return mint(
        "acme",
        key_id=KEY_ID,
        secret=bytes(range(32)),
        name="ci",
        scopes=scopes or [Scope.WRITE],
        now=NOON,
        life=life,
    )


def ask(authorization: str | None) -> dict[str, Any]:
    """The function's answer to the gateway (payload format 2.0)."""
    event: dict[str, Any] = {
        "version": "2.0",
        "type": "REQUEST",
        "routeArn": "arn:aws:execute-api:eu-central-1:123456789012:a1b2c3d4e5/$default/GET/v1/jobs",
        "identitySource": [] if authorization is None else [authorization],
        "routeKey": "$default",
        "rawPath": "/v1/jobs",
        "rawQueryString": "",
        "headers": {} if authorization is None else {"authorization": authorization},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "a1b2c3d4e5",
            "http": {"method": "GET", "path": "/v1/jobs", "sourceIp": "192.0.2.1"},
            "requestId": "request-1",
            "routeKey": "$default",
            "stage": "$default",
        },
    }
    return authorizer.handler(event, Context())


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ([Scope.READ], "read"),
        ([Scope.UPLOAD], "read upload"),
        ([Scope.RUN], "read run"),
        ([Scope.WRITE], "read upload run write"),
        ([Scope.ADMIN], "read upload run write admin"),
        ([Scope.UPLOAD, Scope.RUN], "read upload run"),
    ],
)
def test_a_good_key_gives_its_tenant_and_what_it_may_do(
    store: DynamoDbKeyStore, scopes: list[Scope], expected: str
) -> None:
    made = minted(*scopes)
    store.create(made.key)

    assert ask(f"Bearer {made.text}") == {
        "isAuthorized": True,
        "context": {"tenant": "acme", "keyId": KEY_ID, "scopes": expected},
    }


def wrong(made: Minted) -> dict[str, str | None]:
    tenant_and_id, _, tail = made.text.rpartition(".")
    secret = tail[:43]
    return {
        "nothing": None,
        "empty": "",
        "no key": "Bearer hello",
        "signed": "AWS4-HMAC-SHA256 Credential=AKID/20260524/eu-central-1/execute-api/aws4_request",
        "basic": f"Basic {made.text}",
        "mistyped": f"Bearer {tenant_and_id}.{tail[::-1]}",
        "wrong secret": f"Bearer {write_key('acme', KEY_ID, secret[::-1])}",
        "unknown key": f"Bearer {write_key('acme', '0' * 16, secret)}",
        "another tenant's": f"Bearer {write_key('other', KEY_ID, secret)}",
        "twice": f"Bearer {made.text},Bearer {made.text}",
    }


@pytest.mark.parametrize("kind", wrong(minted()))
def test_anything_else_is_refused(store: DynamoDbKeyStore, kind: str) -> None:
    made = minted()
    store.create(made.key)

    assert ask(wrong(made)[kind]) == REFUSED


def test_a_key_that_expired_or_was_revoked_is_refused(
    store: DynamoDbKeyStore, clock: Clock
) -> None:
    made = minted(life=DAY)
    store.create(made.key)

    clock.move_to(NOON + DAY - timedelta(milliseconds=1))
    assert ask(f"Bearer {made.text}")["isAuthorized"]
    clock.move_to(NOON + DAY)
    assert ask(f"Bearer {made.text}") == REFUSED
    clock.move_to(NOON)
    store.revoke("acme", KEY_ID, NOON)
    assert ask(f"Bearer {made.text}") == REFUSED


def test_a_key_that_does_not_decode_opens_nothing(
    store: DynamoDbKeyStore, tables: Tables, dynamodb: DynamoDBClient
) -> None:
    del store
    broken = to_item({"tenant": "acme", "key_id": KEY_ID, "hash": minted().key.digest})
    dynamodb.put_item(TableName=tables.keys, Item=broken)

    assert ask(f"Bearer {minted().text}") == REFUSED


def test_a_store_error_is_not_cached_as_a_rejection(
    store: DynamoDbKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway caches a rejection, but not an error."""
    faults, memory = Faults(), MemoryKeyStore()
    del store
    monkeypatch.setattr(authorizer.services().check, "_keys", faults.through(memory, "keys"))
    memory.create(minted().key)
    faults.refuse("keys.get")

    with pytest.raises(UnavailableError):
        ask(f"Bearer {minted().text}")
    assert ask(f"Bearer {minted().text}")["isAuthorized"]


def test_no_answer_and_no_log_holds_a_key(store: DynamoDbKeyStore, log: Log) -> None:
    made = minted()
    store.create(made.key)
    secret = made.text.rpartition(".")[2][:43]

    answers = [ask(f"Bearer {made.text}"), *map(ask, wrong(made).values())]
    store.revoke("acme", KEY_ID, NOON)
    answers.append(ask(f"Bearer {made.text}"))

    assert {line["message"] for line in log.lines} == {"refused", "let through"}
    reasons = {line.get("reason") for line in log.lines}
    assert reasons >= {"the key is revoked", "wrong secret"}
    assert {line.get("key") for line in log.lines} >= {f"acme/{KEY_ID}", None}
    for text in (log.getvalue(), json.dumps(answers)):
        for part in (secret, secret[::-1], made.key.digest):
            assert part not in text


def test_the_day_of_use_is_noted(store: DynamoDbKeyStore, clock: Clock) -> None:
    made = minted()
    store.create(made.key)

    def noted() -> str:
        key = store.get("acme", KEY_ID)
        assert key is not None
        return str(key.last_used_on)

    assert noted() == "None"
    ask(f"Bearer {made.text[:-4]}AAAA")
    assert noted() == "None", "a rejected key is not recorded"
    ask(f"Bearer {made.text}")
    assert noted() == "2026-05-24"
    clock.advance(days=1)
    ask(f"Bearer {made.text}")
    assert noted() == "2026-05-25"


def test_a_failed_record_of_use_does_not_reject_the_caller(
    store: DynamoDbKeyStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, made = Faults(), minted()
    store.create(made.key)
    monkeypatch.setattr(authorizer.services().note, "_keys", faults.through(store, "keys"))
    faults.refuse("keys.note_use")

    assert ask(f"Bearer {made.text}")["isAuthorized"]

    [line] = [line for line in log.lines if line["level"] != "DEBUG"]
    assert (line["level"], line["message"]) == ("WARNING", "last use of a key not recorded")
    assert "UnavailableError" in line["problem"]


class _Counting(MemoryKeyStore):
    def __init__(self) -> None:
        super().__init__()
        self.notes = 0

    def note_use(self, *args: Any) -> None:
        self.notes += 1
        super().note_use(*args)


def test_a_use_is_noted_once_a_day_and_tried_again_after_a_while() -> None:
    store, faults = _Counting(), Faults()
    key = a_key()
    store.create(key)
    note = RecordKeyUse(faults.through(store, "keys"), executor=InlineExecutor())
    faults.refuse("keys.note_use")

    assert "UnavailableError" in (note.note(key, NOON) or "")
    assert note.note(key, at("12:09")) is None
    assert store.notes == 0, "a failing store is not called for a while"
    assert note.note(key, at("12:10")) is None
    assert store.notes == 1
    used = replace(key, last_used_on=NOON.date())
    assert note.note(used, at("23:59")) is None
    assert store.notes == 1
    note.note(used, datetime(2026, 5, 25, tzinfo=UTC))
    assert store.notes == 2


class _Hanging(Executor):
    """Never runs what it is given."""

    def submit(self, *_: object, **__: object) -> Future[Any]:
        return Future()


def test_a_store_that_hangs_delays_no_one() -> None:
    note = RecordKeyUse(MemoryKeyStore(), executor=_Hanging())

    assert note.note(a_key(), NOON) == "it took longer than 0.2 s"
