"""API keys are created and looked up; invalid fields are rejected by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.keys import MAX_LIFE, ApiKey
from nextfire.usecases.manage_keys import CheckKey, ManageKeys
from tests.builders import NOON
from tests.fakes import MemoryKeyStore
from tests.unit.keys.conftest import ADMIN, DAY, ID, NEW_ID, READ, create


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a.b"}, "tenant"),
        ({"tenant": "a/b"}, "tenant"),
        ({"tenant": "a" * 65}, "tenant"),
        ({"name": ""}, "name"),
        ({"name": " ci"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a" * 101}, "name"),
        ({"scopes": []}, "scopes"),
        ({"life": timedelta(seconds=59)}, "expiresInSec"),
        ({"life": -DAY}, "expiresInSec"),
        ({"life": MAX_LIFE + timedelta(seconds=1)}, "expiresInSec"),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_its_field(
    manage: ManageKeys, store: MemoryKeyStore, changes: dict[str, object], field: str
) -> None:
    asked = {"name": "ci", "scopes": [READ], "life": DAY, "tenant": "acme"} | changes

    with pytest.raises(InvalidInputError) as refusal:
        manage.create(asked.pop("tenant"), key_id=ID, now=NOON, **asked)  # type: ignore[arg-type]

    assert refusal.value.field == field
    assert not store.items


def test_creating_a_key_twice_returns_the_first_one_without_its_text(
    manage: ManageKeys, check: CheckKey
) -> None:
    first = create(manage)

    again = manage.create("acme", key_id=ID, name="x", scopes=[ADMIN], now=NOON, life=DAY)

    assert again == first.key
    assert isinstance(again, ApiKey)
    assert check.check(f"Bearer {first.text}", NOON).key == first.key


@pytest.mark.parametrize("do", ["get", "revoke", "rotate"])
def test_a_key_that_is_not_there_is_not_found(manage: ManageKeys, do: str) -> None:
    create(manage)
    calls: dict[str, Callable[[str, str], object]] = {
        "get": manage.get,
        "revoke": lambda tenant, key_id: manage.revoke(tenant, key_id, NOON),
        "rotate": lambda tenant, key_id: manage.rotate(tenant, key_id, new_id=NEW_ID, now=NOON),
    }

    for tenant, key_id in (("acme", NEW_ID), ("other", ID)):
        with pytest.raises(NotFoundError):
            calls[do](tenant, key_id)
