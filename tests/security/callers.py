"""Callers of the API, each with its own identity."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from functions.authorizer import handler as authorizer
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from nextfire.domain.keys import Scope, mint
from tests.builders import NOON
from tests.integration.deployment import Answer, Context, Deployment, http_event

if TYPE_CHECKING:
    pass


KEY_ID = "00000000000000aa"
HERE, ELSEWHERE = "203.0.113.9", "198.51.100.7"
JOB = {"type": "MANUAL", "target": {"handler": "hello"}}


class Caller:
    """Calls the API as its gateway does: the authorizer's verdict is cached by key only, and each
    request has its own source address.
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
    made = mint("acme", key_id=KEY_ID, secret=bytes(32), name="a", scopes=[Scope.ADMIN], now=NOON)
    store.create(made.key)
    return Caller(system, made.text)


def key_of(by: Caller, *scopes: str, **more: object) -> dict[str, Any]:
    answer = by.call("POST", "/v1/keys", {"name": "n", "scopes": scopes or ["read"], **more})
    assert answer.status == 201, answer.document
    return answer.document
