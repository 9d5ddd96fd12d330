"""The routes of API keys: permissions, answers, and how the authorizer treats the keys."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest

from functions.authorizer import handler as authorizer
from nextfire.adapters.dynamodb.key_store import DynamoDbKeyStore
from tests.fakes import Clock
from tests.integration.api_runs import stopped_clocks
from tests.integration.deployment import Answer, Context, Deployment, http_event

KEYS = {"tenant": "acme", "keyId": "00000000000000aa"}
DAY = timedelta(days=1)
ROUTES = [
    ("POST", "/v1/keys"),
    ("GET", "/v1/keys"),
    ("GET", "/v1/keys/00000000000000aa"),
    ("DELETE", "/v1/keys/00000000000000aa"),
    ("POST", "/v1/keys/00000000000000aa/rotate"),
]
NEW = {"name": "ci", "scopes": ["write"]}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return stopped_clocks(monkeypatch)


@pytest.fixture
def store(system: Deployment) -> DynamoDbKeyStore:
    return DynamoDbKeyStore(system.database, table=system.keys_table)


def call(
    system: Deployment,
    method: str,
    path: str,
    body: object = None,
    *,
    tenant: str = "acme",
    scopes: str = "read write admin",
    **query: str,
) -> Answer:
    """Call as the gateway does for the bearer of a key."""
    context = {"lambda": {"tenant": tenant, "keyId": "00000000000000ff", "scopes": scopes}}
    text = None if body is None else json.dumps(body)
    return system.answer(http_event(method, path, text, query=query, authorizer=context))


def create(system: Deployment, **more: object) -> dict[str, Any]:
    answer = call(system, "POST", "/v1/keys", NEW | more)
    assert answer.status == 201, answer.document
    return dict(answer.document)


def through_the_gateway(
    system: Deployment, key: str, method: str, path: str, body: object = None
) -> Answer | None:
    """The answer to a request with *key*; None: the authorizer rejects it."""
    verdict = authorizer.handler({"identitySource": [f"Bearer {key}"]}, Context())
    if not verdict["isAuthorized"]:
        return None
    text = None if body is None else json.dumps(body)
    context = {"lambda": verdict["context"]}
    return system.answer(http_event(method, path, text, authorizer=context))


def test_a_new_key_is_shown_once_and_works(system: Deployment, store: DynamoDbKeyStore) -> None:
    made = create(system, expiresInSec=3600)

    text = made.pop("key")
    assert made == {
        "keyId": text.split(".")[1],
        "name": "ci",
        "scopes": ["write"],
        "state": "ACTIVE",
        "createdAt": "2026-05-24T12:00:00Z",
        "expiresAt": "2026-05-24T13:00:00Z",
    }
    assert text.startswith("nfk_acme.")
    assert call(system, "GET", f"/v1/keys/{made['keyId']}").document == made
    assert call(system, "GET", "/v1/keys").document == {"items": [made]}
    assert store.get("acme", made["keyId"]) is not None
    jobs = through_the_gateway(system, text, "GET", "/v1/jobs")
    assert jobs is not None
    assert jobs.status == 200


def test_a_key_lives_ninety_days_by_default(system: Deployment) -> None:
    made = create(system)

    life = datetime.fromisoformat(made["expiresAt"]) - datetime.fromisoformat(made["createdAt"])
    assert life == 90 * DAY


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("scopes", ["", "read", "read write"])
def test_keys_are_for_administrators(
    system: Deployment, method: str, path: str, scopes: str
) -> None:
    body = NEW if path == "/v1/keys" and method == "POST" else None

    answer = call(system, method, path, body, scopes=scopes)

    assert answer.status == 403
    assert "`admin`" in answer.document["detail"]


def test_a_key_that_reads_does_not_write(system: Deployment) -> None:
    reads = create(system, scopes=["read"])["key"]
    job = {"type": "MANUAL", "target": {"handler": "hello"}}

    refused = through_the_gateway(system, reads, "POST", "/v1/jobs", job)

    assert refused is not None
    assert (refused.status, refused.media_type) == (403, "application/problem+json")
    assert "`run`" in refused.document["detail"]
    listed = through_the_gateway(system, reads, "GET", "/v1/jobs")
    assert listed is not None
    assert (listed.status, listed.document) == (200, {"items": []})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a" * 101}, "name"),
        ({"name": " a"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": None}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes.0"),
        ({"scopes": ["read"] * 6}, "scopes"),
        ({"scopes": "read"}, "scopes"),
        ({"expiresInSec": 59}, "expiresInSec"),
        ({"expiresInSec": 1830 * 86_400 + 1}, "expiresInSec"),
        ({"expiresInSec": "60"}, "expiresInSec"),
        ({"tenant": "other"}, "tenant"),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_its_field(
    system: Deployment, changes: dict[str, object], field: str
) -> None:
    answer = call(system, "POST", "/v1/keys", NEW | changes)

    assert answer.status == 422
    assert answer.fault["field"] == field
    assert call(system, "GET", "/v1/keys").document == {"items": []}


def test_a_revoked_key_is_rejected(system: Deployment, clock: Clock) -> None:
    made = create(system, scopes=["admin"])
    path = f"/v1/keys/{made['keyId']}"
    clock.advance(hours=1)

    revoked = call(system, "DELETE", path)
    clock.advance(hours=1)
    again = call(system, "DELETE", path)

    assert revoked.status == again.status == 200
    assert revoked.document == again.document == call(system, "GET", path).document
    assert revoked.document["state"] == "REVOKED"
    assert revoked.document["revokedAt"] == "2026-05-24T13:00:00Z"
    assert through_the_gateway(system, made["key"], "GET", "/v1/jobs") is None


def test_a_key_can_revoke_itself(system: Deployment) -> None:
    made = create(system, scopes=["admin"])

    answer = through_the_gateway(system, made["key"], "DELETE", f"/v1/keys/{made['keyId']}")

    assert answer is not None
    assert answer.status == 200
    assert through_the_gateway(system, made["key"], "GET", "/v1/jobs") is None


def test_rotation_gives_a_new_key_and_a_while_to_bring_it_about(
    system: Deployment, clock: Clock
) -> None:
    old = create(system, scopes=["read"], expiresInSec=30 * 86_400)
    clock.advance(days=9)

    answer = call(system, "POST", f"/v1/keys/{old['keyId']}/rotate", {"overlapSec": 3600})

    assert answer.status == 201
    new = answer.document["new"]
    assert answer.document["old"]["expiresAt"] == "2026-06-02T13:00:00Z"
    assert (new["name"], new["scopes"]) == (old["name"], old["scopes"])
    assert new["expiresAt"] == "2026-07-02T12:00:00Z"
    assert "key" not in answer.document["old"]
    for key in (old["key"], new["key"]):
        assert through_the_gateway(system, key, "GET", "/v1/jobs") is not None
    clock.advance(hours=1)
    assert through_the_gateway(system, old["key"], "GET", "/v1/jobs") is None
    assert through_the_gateway(system, new["key"], "GET", "/v1/jobs") is not None


def test_an_expired_or_revoked_key_is_not_rotated(system: Deployment) -> None:
    made = create(system)
    call(system, "DELETE", f"/v1/keys/{made['keyId']}")

    answer = call(system, "POST", f"/v1/keys/{made['keyId']}/rotate")

    assert answer.status == 409
    assert "REVOKED" in answer.document["detail"]
    assert len(call(system, "GET", "/v1/keys").document["items"]) == 1


def test_the_last_use_of_a_key_is_shown(system: Deployment) -> None:
    made = create(system)

    through_the_gateway(system, made["key"], "GET", "/v1/jobs")

    shown = call(system, "GET", f"/v1/keys/{made['keyId']}").document
    assert shown["lastUsedOn"] == "2026-05-24"


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if "00aa" in route[1]])
def test_another_tenants_key_is_not_there(system: Deployment, method: str, path: str) -> None:
    made = create(system)
    path = path.replace("00000000000000aa", made["keyId"])

    answer = call(system, method, path, tenant="other")

    assert answer.status == 404
    assert call(system, "GET", "/v1/keys", tenant="other").document == {"items": []}
    assert call(system, "GET", f"/v1/keys/{made['keyId']}").document["state"] == "ACTIVE"


@pytest.mark.parametrize("key_id", ["x", "00000000000000AA", "0" * 17, "%20"])
def test_an_invalid_id_is_reported(system: Deployment, key_id: str) -> None:
    answer = call(system, "GET", f"/v1/keys/{key_id}")

    assert answer.status == 422
    assert answer.fault["field"] == "keyId"


def test_keys_are_listed_page_by_page(system: Deployment) -> None:
    made = sorted(create(system)["keyId"] for _ in range(5))

    first = call(system, "GET", "/v1/keys", limit="3").document
    rest = call(system, "GET", "/v1/keys", limit="3", cursor=first["cursor"]).document

    assert [key["keyId"] for key in first["items"] + rest["items"]] == made
    assert "cursor" not in rest
    theirs = call(system, "GET", "/v1/keys", tenant="other", cursor=first["cursor"])
    assert theirs.document == {"items": []}


def test_a_key_that_does_not_decode_is_listed_as_such(
    system: Deployment,
) -> None:
    made = create(system)
    system.database.put_item(
        TableName=system.keys_table,
        Item={"tenant": {"S": "acme"}, "key_id": {"S": "0" * 16}},
    )

    items = call(system, "GET", "/v1/keys").document["items"]

    assert items[0] == {
        "keyId": "0" * 16,
        "state": "UNREADABLE",
        "reason": items[0]["reason"],
    }
    assert items[1]["keyId"] == made["keyId"]


@pytest.mark.parametrize("auth", ["iam", "jwt"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_where_no_keys_are_checked_none_are_made(
    system: Deployment, monkeypatch: pytest.MonkeyPatch, auth: str, method: str, path: str
) -> None:
    system.configure(monkeypatch, auth=auth)
    body = NEW if path == "/v1/keys" and method == "POST" else None

    answer = call(system, method, path, body)

    assert answer.status == 409
    assert "auth=keys" in answer.document["detail"]


def test_a_tokens_tenant_is_in_the_claim_that_was_set(
    system: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.configure(monkeypatch, auth="jwt", tenant_claim="org")
    job = {"jobId": "j", "type": "MANUAL", "target": {"handler": "hello"}}

    def ask(method: str, claims: dict[str, str], body: object = None) -> Answer:
        context = {"jwt": {"claims": claims, "scopes": None}}
        text = None if body is None else json.dumps(body)
        return system.answer(http_event(method, "/v1/jobs", text, authorizer=context))

    acme = {"sub": "u", "org": "acme", "scope": "openid write"}
    assert ask("POST", acme, job).status == 201
    assert [each["jobId"] for each in ask("GET", acme).document["items"]] == ["j"]
    assert ask("GET", acme | {"org": "other"}).document == {"items": []}
    assert ask("POST", acme | {"scope": "read"}, job).status == 403
    no_tenant = ask("GET", {"sub": "u", "scope": "admin"})
    assert no_tenant.status == 403
    assert "`org`" in no_tenant.document["detail"]


def test_no_log_holds_a_key(
    system: Deployment, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)

    secret = create(system)["key"].rpartition(".")[2]

    printed = capfd.readouterr()
    assert secret not in printed.out + printed.err
    assert not [record for record in caplog.records if secret in str(vars(record))]
