"""A store of API keys, and the use cases that manage and check them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.keys import Minted, Scope
from nextfire.usecases.manage_keys import CheckKey, ManageKeys
from tests.builders import NOON
from tests.fakes import MemoryKeyStore

DAY = timedelta(days=1)
ID, NEW_ID = "00000000000000aa", "00000000000000bb"
READ, UPLOAD, RUN, WRITE, ADMIN = Scope


class Random:
    """Unique bytes: the number of the call."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, size: int) -> bytes:
        self._calls += 1
        return self._calls.to_bytes(size, "big")


@pytest.fixture
def store() -> MemoryKeyStore:
    return MemoryKeyStore()


@pytest.fixture
def manage(store: MemoryKeyStore) -> ManageKeys:
    return ManageKeys(store, random=Random())


@pytest.fixture
def check(store: MemoryKeyStore) -> CheckKey:
    return CheckKey(store)


def create(manage: ManageKeys, *scopes: Scope, key_id: str = ID, life: timedelta = DAY) -> Minted:
    made = manage.create(
        "acme", key_id=key_id, name="ci", scopes=scopes or [WRITE], now=NOON, life=life
    )
    assert isinstance(made, Minted)
    return made
