"""Attacks on who may call the API: each test performs one, and sees it fail."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from functions.api import app as api
from functions.authorizer import handler as authorizer
from nextfire.adapters.aws import from_item
from nextfire.adapters.key_store import DynamoDbKeyStore
from nextfire.domain.key_text import SCANNER, fault_of, parse, write_key
from nextfire.domain.keys import Scope, mint
from tests.builders import NOON
from tests.fakes import Clock
from tests.integration.deployment import Answer, Context, Deployment, http_event

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PAGE = Path(__file__).parents[2] / "docs" / "identity.md"
KEY_ID = "00000000000000aa"
HERE, ELSEWHERE = "203.0.113.9", "198.51.100.7"
ETL = {"team": "etl"}
JOB = {"type": "MANUAL", "target": {"handler": "hello"}}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(NOON)
    monkeypatch.setattr(api, "clock", clock)
    monkeypatch.setattr(authorizer, "clock", clock)
    authorizer.services.cache_clear()
    return clock


class Caller:
    """Calls the API as its gateway does: the authorizer's verdict is kept by the key alone, and
    each request has its own source address.
    """

    def __init__(self, system: Deployment, key: str) -> None:
        self._system = system
        verdict = authorizer.handler({"identitySource": [f"Bearer {key}"]}, Context())
        self.context = verdict.get("context")
        self.let_in: bool = verdict["isAuthorized"]

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        source: str = HERE,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        assert self.let_in
        text = None if body is None else json.dumps(body)
        event = http_event(method, path, text, query=query, authorizer={"lambda": self.context})
        event["requestContext"]["http"]["sourceIp"] = source
        event["headers"] |= headers or {}
        return self._system.answer(event)


def admin(system: Deployment) -> Caller:
    store = DynamoDbKeyStore(system.database, table=system.keys_table)
    made = mint(
        "acme", key_id=KEY_ID, secret=bytes(32), name="a", scopes=[Scope.ADMIN], now=NOON
    )
    store.create(made.key)
    return Caller(system, made.text)


def key_of(by: Caller, *scopes: str, **more: object) -> dict[str, Any]:
    answer = by.call("POST", "/v1/keys", {"name": "n", "scopes": scopes or ["read"], **more})
    assert answer.status == 201, answer.document
    return answer.document


class TestText:
    def test_the_documented_expression_is_ours(self) -> None:
        assert SCANNER in PAGE.read_text()

    def test_the_expression_finds_each_new_key(self) -> None:
        for number in range(200):
            secret = (number * 0x9E3779B97F4A7C15 % 2**256).to_bytes(32)
            tenant = ("a", "acme-corp_1", "123456789012", "Z" * 64)[number % 4]
            text = mint(
                tenant, key_id=KEY_ID, secret=secret, name="n", scopes=[Scope.READ], now=NOON
            ).text
            for where in ("{}", "KEY={}\n", '"{}",', "Bearer {}", "https://x/?k={}&a=b", "'{}'"):
                found = re.findall(SCANNER, where.format(text))
                assert found == [text]

    @pytest.mark.parametrize(
        "text",
        [
            "nfk_", "nfk_acme", "nfk_acme.py", "nfk_TENANT.ID.SECRET", f"nfk_acme.{KEY_ID}",
            f"nfk_acme.{KEY_ID}.{'A' * 48}", f"nfk_acme.{KEY_ID}.{'A' * 50}",
            f"xnfk_acme.{KEY_ID}.{'A' * 49}", f"nf.acme.{KEY_ID}.{'A' * 43}",
            f"nfk_acme.{KEY_ID.upper()}.{'A' * 49}", f"nfk_acme.{KEY_ID}-{'A' * 49}",
            "ghp_" + "A" * 36, "0" * 64, "nfk_acme.00000000000000aa.e3b0c44298fc1c149afbf4c8996fb924",
        ],
    )  # fmt: skip
    def test_the_expression_finds_nothing_else(self, text: str) -> None:
        assert re.search(SCANNER, text) is None

    def test_any_one_mistyped_character_is_recognised_without_a_read(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del system
        text = write_key("acme", KEY_ID, "0123456789" * 4 + "abc")
        monkeypatch.setattr(authorizer.services().check, "_keys", None)  # asking it would raise
        for place in range(len(text)):
            for other in "Aa0_.":
                wrong = text[:place] + other + text[place + 1 :]
                if wrong != text:
                    assert fault_of(wrong)
                    assert not authorizer.handler(
                        {"identitySource": [f"Bearer {wrong}"]}, Context()
                    )["isAuthorized"]
        swapped = text[:-8] + text[-7] + text[-8] + text[-6:]
        assert fault_of(swapped) or swapped == text

    def test_a_key_of_the_old_form_still_works(self, system: Deployment) -> None:
        presented = parse(f"nf.acme.{KEY_ID}.{'A-_' + 'b' * 40}")
        assert presented is not None
        assert (presented.tenant, presented.key_id) == ("acme", KEY_ID)
        secret = presented.secret
        store = DynamoDbKeyStore(system.database, table=system.keys_table)
        from dataclasses import replace

        from nextfire.domain.keys import digest_of

        new = mint("acme", key_id=KEY_ID, secret=bytes(32), name="o", scopes=["read"], now=NOON)  # type: ignore[list-item]
        store.create(replace(new.key, scopes=frozenset({Scope.READ}), digest=digest_of(secret)))

        assert Caller(system, f"nf.acme.{KEY_ID}.{secret}").call("GET", "/v1/jobs").status == 200
