"""API keys: their text, scopes and validity; secrets never appear in output."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.errors import ConflictError, InvalidInputError, NotFoundError
from nextfire.domain.key_text import KEY_ID, KEY_TENANT, Presented, parse, write_key
from nextfire.domain.keys import (
    DEFAULT_LIFE,
    MAX_LIFE,
    ApiKey,
    KeyCheck,
    KeyState,
    Minted,
    Scope,
    implied,
    judge,
    mint,
)
from nextfire.usecases.manage_keys import CheckKey, ManageKeys, new_key_id
from tests.builders import NOON, a_key, at
from tests.fakes import MemoryKeyStore

DAY = timedelta(days=1)
ID, NEW_ID = "00000000000000aa", "00000000000000bb"
INCOMPLETE = "not a key: it is incomplete, or has characters that a key does not have"
MISTYPED = "not a key: its checksum is wrong: a character is missing, changed or out of place"
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


@given(
    tenant=st.from_regex(KEY_TENANT, fullmatch=True),
    key_id=st.from_regex(KEY_ID, fullmatch=True),
    secret=st.binary(min_size=32, max_size=32),
)
def test_the_text_of_a_key_names_its_tenant(tenant: str, key_id: str, secret: bytes) -> None:
    minted = mint(tenant, key_id=key_id, secret=secret, name="n", scopes=[READ], now=NOON)

    presented = parse(minted.text)

    assert presented is not None
    assert (presented.tenant, presented.key_id) == (tenant, key_id)
    assert minted.text == write_key(tenant, key_id, presented.secret)
    assert judge(presented, minted.key, NOON).key == minted.key


@given(st.text())
def test_any_other_text_is_not_a_key(text: str) -> None:
    assert parse(text) is None


GOOD = f"nf.acme.{ID}.{'A' * 43}"


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "\n", " " + GOOD, GOOD + "A", GOOD[:-1], GOOD.upper(), GOOD.replace("nf", "nfk"),
        f"nf..{ID}.{'A' * 43}", f"nf.a.b.{ID}.{'A' * 43}", f"nf.a/b.{ID}.{'A' * 43}",
        f"nf.acme.{ID[:-1]}.{'A' * 43}", f"nf.acme.{ID[:-1]}G.{'A' * 43}",
        f"nf.{'a' * 65}.{ID}.{'A' * 43}", f"nf.acme.{ID}.{'A' * 42}=", f"nf.acmé.{ID}.{'A' * 43}",
        f"nf.acme.{'٣' * 16}.{'A' * 43}",
    ],
)  # fmt: skip
def test_a_mistyped_key_is_rejected(text: str) -> None:
    assert parse(GOOD) is not None
    assert parse(text) is None


def test_only_the_hash_of_the_secret_is_kept() -> None:
    minted = mint("acme", key_id=ID, secret=b"x" * 32, name="ci", scopes=[READ], now=NOON)
    presented = parse(minted.text)
    assert presented is not None
    secret = presented.secret

    assert minted.key.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in repr(minted)
    assert secret not in repr(parse(minted.text))
    assert minted.key.digest not in repr(minted.key)


def test_a_scope_implies_the_lesser_ones() -> None:
    assert [implied([scope]) for scope in Scope] == [
        {READ}, {READ, UPLOAD}, {READ, RUN}, {READ, UPLOAD, RUN, WRITE}, set(Scope),
    ]  # fmt: skip
    assert implied([READ, ADMIN]) == set(Scope)
    assert implied([]) == set()


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


def test_a_key_is_good_from_its_making_to_its_expiry() -> None:
    key = a_key(life=DAY)

    assert key.state(NOON) is KeyState.ACTIVE
    assert key.state(NOON + DAY - timedelta(milliseconds=1)) is KeyState.ACTIVE
    assert key.state(NOON + DAY) is KeyState.EXPIRED
    assert replace(key, revoked_at=NOON).state(NOON + DAY) is KeyState.REVOKED
    assert a_key(life=DEFAULT_LIFE).expires_at == NOON + timedelta(days=90)


def test_a_day_of_use_is_noted_once() -> None:
    key = a_key()
    late, early = at("23:59:59.999"), datetime(2026, 5, 25, tzinfo=UTC)

    assert key.use_to_record(late) == date(2026, 5, 24)
    used = replace(key, last_used_on=date(2026, 5, 24))
    assert used.use_to_record(late) is None
    assert used.use_to_record(early) == date(2026, 5, 25)
    assert used.use_to_record(NOON - DAY) is None, "a clock that is behind"


def test_a_good_key_is_recognised(manage: ManageKeys, check: CheckKey) -> None:
    text = create(manage).text

    for header in (f"Bearer {text}", f"bearer {text}", f"BEARER  {text} "):
        verdict = check.check(header, NOON)
        assert verdict.key is not None
        assert (verdict.key.tenant, verdict.key.key_id) == ("acme", ID)
        assert verdict.reason == "the key is valid"


def refusals(text: str) -> dict[str, str]:
    presented = parse(text)
    assert presented is not None
    secret, tail = presented.secret, text.rpartition(".")[2]
    return {
        text: "not a bearer authorization",
        f"Basic {text}": "not a bearer authorization",
        "Bearer": "not a bearer authorization",
        "": "not a bearer authorization",
        "Bearer ": "not a key: a key begins with nfk_",
        "Bearer nf.x": "not a key: a key begins with nfk_",
        f"Bearer {text}, Bearer {text}": INCOMPLETE,
        f"Bearer {text[:-1]}": INCOMPLETE,
        f"Bearer {text[:-1]}{'A' if text[-1] != 'A' else 'B'}": MISTYPED,
        f"Bearer nfk_acme.{NEW_ID}.{tail}": MISTYPED,
        f"Bearer {write_key('acme', NEW_ID, secret)}": "key not found",
        f"Bearer {write_key('other', ID, secret)}": "key not found",
        f"Bearer {write_key('acme', ID, 'B' * 43)}": "wrong secret",
        f"Bearer nf.acme.{ID}.{secret[::-1]}": "wrong secret",
    }


def test_invalid_authorization_is_rejected_without_being_repeated(
    manage: ManageKeys, check: CheckKey
) -> None:
    text = create(manage).text

    for header, reason in refusals(text).items():
        verdict = check.check(header, NOON)
        assert (verdict.key, verdict.reason) == (None, reason)


def test_an_expired_or_revoked_key_is_rejected(manage: ManageKeys, check: CheckKey) -> None:
    header = f"Bearer {create(manage, life=DAY).text}"

    assert check.check(header, NOON + DAY).reason == "the key expired at 2026-05-25T12:00:00Z"
    manage.revoke("acme", ID, at("13:00"))
    assert check.check(header, at("13:00")).key is None
    assert check.check(header, NOON).reason == "the key is revoked"


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return hmac.compare_digest(a, b)

    class Spy:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr("nextfire.domain.keys.hmac", Spy)
    presented = Presented("acme", ID, "B" * 43)

    judge(presented, a_key(), NOON)
    judge(presented, None, NOON)

    assert [len(b) for _, b in compared] == [64, 64], "an unknown key takes the same work"
    assert compared[0][1] == a_key().digest


def test_a_key_is_judged_by_its_own_record() -> None:
    minted = mint("acme", key_id=ID, secret=bytes(32), name="n", scopes=[READ], now=NOON)
    presented = parse(minted.text)
    assert presented is not None

    with pytest.raises(ValueError, match="another tenant or id"):
        judge(presented, replace(minted.key, tenant="other"), NOON)


def test_a_refusal_says_which_key_was_claimed() -> None:
    presented = Presented("acme", ID, "B" * 43)

    assert [judge(presented, stored, NOON) for stored in (None, a_key(ID))] == [
        KeyCheck(None, "key not found", f"acme/{ID}"),
        KeyCheck(None, "wrong secret", f"acme/{ID}"),
    ]


def test_creating_a_key_twice_returns_the_first_one_without_its_text(
    manage: ManageKeys, check: CheckKey
) -> None:
    first = create(manage)

    again = manage.create("acme", key_id=ID, name="x", scopes=[ADMIN], now=NOON, life=DAY)

    assert again == first.key
    assert isinstance(again, ApiKey)
    assert check.check(f"Bearer {first.text}", NOON).key == first.key


def test_ids_are_new_each_time() -> None:
    made = {new_key_id() for _ in range(100)}

    assert len(made) == 100
    assert all(re.fullmatch(KEY_ID, key_id) for key_id in made)


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
