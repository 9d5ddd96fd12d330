"""Rotation: an equal key, the overlap with the old one, and its repetition."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.errors import ConflictError, InvalidInputError
from nextfire.domain.keys import Minted
from nextfire.usecases.manage_keys import CheckKey, ManageKeys
from tests.builders import NOON, at
from tests.fakes import MemoryKeyStore
from tests.unit.keys.conftest import DAY, ID, NEW_ID, READ, WRITE, create


def test_rotation_creates_an_equal_key_and_expires_the_old_one(
    manage: ManageKeys, check: CheckKey
) -> None:
    old = create(manage, READ, WRITE, life=30 * DAY)
    now = NOON + 10 * DAY

    rotated = manage.rotate("acme", ID, new_id=NEW_ID, now=now, overlap=2 * DAY)

    assert isinstance(rotated.made, Minted)
    new = rotated.made.key
    assert (new.key_id, new.name, new.scopes) == (NEW_ID, "ci", frozenset({READ, WRITE}))
    assert new.expires_at == now + 30 * DAY
    assert rotated.old.expires_at == now + 2 * DAY
    for at_, valid_count in ((now + DAY, 2), (now + 2 * DAY, 1)):
        texts = (old.text, rotated.made.text)
        found = [check.check(f"Bearer {text}", at_).key for text in texts]
        assert len([key for key in found if key]) == valid_count


def test_rotation_of_a_key_that_was_rotated_gives_the_life_it_was_made_for(
    manage: ManageKeys,
) -> None:
    create(manage, life=30 * DAY)
    for new_id, now in (("00000000000000c1", NOON), (NEW_ID, at("18:00"))):
        rotated = manage.rotate("acme", ID, new_id=new_id, now=now, overlap=DAY)

        assert isinstance(rotated.made, Minted)
        assert rotated.made.key.expires_at == now + 30 * DAY
        assert rotated.old.expires_at == NOON + DAY


def test_rotation_lets_no_key_live_longer(manage: ManageKeys) -> None:
    create(manage, life=DAY)

    rotated = manage.rotate("acme", ID, new_id=NEW_ID, now=NOON, overlap=2 * DAY, life=3 * DAY)

    assert rotated.old.expires_at == NOON + DAY
    assert isinstance(rotated.made, Minted)
    assert rotated.made.key.expires_at == NOON + 3 * DAY


def test_rotation_done_again_changes_nothing(manage: ManageKeys, store: MemoryKeyStore) -> None:
    create(manage, life=9 * DAY)
    manage.rotate("acme", ID, new_id=NEW_ID, now=NOON, overlap=timedelta())
    after = dict(store.items)

    again = manage.rotate("acme", ID, new_id=NEW_ID, now=at("12:00:05"), overlap=timedelta())

    assert again.made == store.items["acme", NEW_ID], "the text of the key cannot be shown again"
    assert store.items == after


@pytest.mark.parametrize("gone", ["revoked", "expired"])
def test_an_expired_or_revoked_key_is_not_rotated(
    manage: ManageKeys, store: MemoryKeyStore, gone: str
) -> None:
    create(manage)
    if gone == "revoked":
        manage.revoke("acme", ID, NOON)

    with pytest.raises(ConflictError, match=gone.upper()):
        manage.rotate("acme", ID, new_id=NEW_ID, now=NOON + DAY)

    assert len(store.items) == 1


@pytest.mark.parametrize("overlap", [-DAY, 31 * DAY])
def test_an_overlap_that_cannot_be_changes_nothing(
    manage: ManageKeys, store: MemoryKeyStore, overlap: timedelta
) -> None:
    create(manage)
    before = dict(store.items)

    with pytest.raises(InvalidInputError) as refusal:
        manage.rotate("acme", ID, new_id=NEW_ID, now=NOON, overlap=overlap)

    assert refusal.value.field == "overlapSec"
    assert store.items == before
