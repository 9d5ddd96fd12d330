"""The text of an API key: its parts, and texts that are not keys."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.key_text import KEY_ID, KEY_TENANT, parse, write_key
from nextfire.domain.keys import judge, mint
from nextfire.usecases.manage_keys import new_key_id
from tests.builders import NOON
from tests.unit.keys.conftest import ID, READ


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


def test_ids_are_new_each_time() -> None:
    made = {new_key_id() for _ in range(100)}

    assert len(made) == 100
    assert all(re.fullmatch(KEY_ID, key_id) for key_id in made)
