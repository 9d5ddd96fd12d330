"""Which authorization is accepted: scopes, validity, secrets that are never repeated."""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from nextfire.domain.key_text import Presented, parse, write_key
from nextfire.domain.keys import DEFAULT_LIFE, KeyCheck, KeyState, Scope, implied, judge, mint
from nextfire.usecases.manage_keys import CheckKey, ManageKeys
from tests.builders import NOON, a_key, at
from tests.unit.keys.conftest import ADMIN, DAY, ID, NEW_ID, READ, RUN, UPLOAD, WRITE, create

INCOMPLETE = "not a key: it is incomplete, or has characters that a key does not have"
MISTYPED = "not a key: its checksum is wrong: a character is missing, changed or out of place"


def test_a_scope_implies_the_lesser_ones() -> None:
    assert [implied([scope]) for scope in Scope] == [
        {READ}, {READ, UPLOAD}, {READ, RUN}, {READ, UPLOAD, RUN, WRITE}, set(Scope),
    ]  # fmt: skip
    assert implied([READ, ADMIN]) == set(Scope)
    assert implied([]) == set()


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
