"""The API key that the local stack creates: present, valid and private to its user."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3  # noqa: TID251 - stands in for the emulator's client
import pytest
from moto import mock_aws

from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.key_text import parse
from nextfire.domain.keys import ApiKey, Scope
from nextfire.usecases.manage_keys import CheckKey
from nextfire_cli.local import api_key
from nextfire_cli.local.stack import LocalStack
from tests.builders import NOON, key_text
from tests.fakes import Clock
from tests.unit.cli.keys import create_table

OUTPUTS = {"KeysTable": "the-keys"}
DAY = timedelta(days=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOON)

    class At(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            assert tz is UTC
            return clock.now()

    monkeypatch.setattr(api_key, "datetime", At)
    return clock


@pytest.fixture
def store() -> Iterator[DynamoDbKeyStore]:
    with mock_aws():
        client = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        create_table(client)
        yield DynamoDbKeyStore(client, table="the-keys")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "api-key"


def start(tmp_path: Path, store: DynamoDbKeyStore) -> LocalStack:
    """Run only the part of a start that provides the key."""
    (tmp_path / "state").mkdir(exist_ok=True)
    stack = LocalStack(tmp_path, state=tmp_path / "state")
    stack._emulator._clients["dynamodb"] = store._client  # noqa: SLF001
    stack._provide_key(OUTPUTS)  # noqa: SLF001
    return stack


def valid_key(store: DynamoDbKeyStore, file: Path, now: datetime) -> ApiKey | None:
    return CheckKey(store).check(f"Bearer {file.read_text().strip()}", now).key


def test_the_first_start_makes_a_key_that_may_do_all(
    tmp_path: Path, store: DynamoDbKeyStore, file: Path, clock: Clock
) -> None:
    start(tmp_path, store)

    key = valid_key(store, file, clock.now())
    assert key is not None
    assert (key.tenant, key.scopes) == ("000000000000", frozenset({Scope.ADMIN}))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_next_start_keeps_it(
    tmp_path: Path, store: DynamoDbKeyStore, file: Path, clock: Clock
) -> None:
    start(tmp_path, store)
    held = file.read_text()
    clock.advance(days=300)
    file.chmod(0o644)

    start(tmp_path, store)

    assert file.read_text() == held
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(store.list("000000000000", cursor=None, limit=9).items) == 1


@pytest.mark.parametrize("gone", ["revoked", "expires soon", "lost", "spoilt"])
def test_a_key_that_is_revoked_or_unusable_is_replaced(
    tmp_path: Path, store: DynamoDbKeyStore, file: Path, clock: Clock, gone: str
) -> None:
    start(tmp_path, store)
    presented = parse(file.read_text().strip())
    assert presented is not None
    match gone:
        case "revoked":
            store.revoke(presented.tenant, presented.key_id, clock.now())
        case "expires soon":
            clock.advance(days=336)
        case "lost":  # the emulator had not saved the key
            file.write_text(f"{key_text('000000000000')}\n")
        case "spoilt":
            file.write_text("é")

    start(tmp_path, store)

    key = valid_key(store, file, clock.now() + 30 * DAY)
    assert key is not None
    assert key.key_id != presented.key_id


def test_down_removes_it(tmp_path: Path, store: DynamoDbKeyStore, file: Path, clock: Clock) -> None:
    del clock
    stack = start(tmp_path, store)

    stack.remove()

    assert not file.exists()
