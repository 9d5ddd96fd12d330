"""The caller's identity in each form of gateway authorizer context; all else is rejected."""

from __future__ import annotations

from typing import Any

import pytest

from functions.api.identity import Identity, NoTenantError, identify, including
from nextfire.domain.keys import Scope

READ, UPLOAD, RUN, WRITE, ADMIN = Scope
WRITES = frozenset({READ, UPLOAD, RUN, WRITE})
ARN = "arn:aws:iam::123456789012:user/u"


def of_key(**changes: object) -> dict[str, Any]:
    return {"lambda": {"tenant": "acme", "keyId": "00000000000000aa", "scopes": "read"} | changes}


def of_token(**claims: object) -> dict[str, Any]:
    return {"jwt": {"claims": {"sub": "user-1", "org": "acme", **claims}, "scopes": None}}


def test_an_api_key_shows_its_tenant_and_scopes() -> None:
    found = identify(of_key(scopes="read write"))

    assert found == Identity("acme", "00000000000000aa", WRITES, "key:00000000000000aa")


def test_a_signature_identifies_an_account_that_may_do_all() -> None:
    iam = {"accountId": "123456789012", "userArn": ARN, "callerId": "U"}

    assert identify({"iam": iam}) == Identity("123456789012", ARN, frozenset(Scope), f"iam:{ARN}")
    assert identify({"iam": {"accountId": "1"}}).principal == "1"


def test_a_token_has_its_tenant_in_the_claim_that_was_set() -> None:
    token = of_token(scope="openid nextfire/write", tenant="mallory")

    assert identify(token, tenant_claim="org") == Identity("acme", "user-1", WRITES, "jwt:user-1")


def test_a_token_of_a_program_is_named_by_its_client() -> None:
    claims = {"client_id": "ci", "org": "acme", "scope": "read"}

    assert identify({"jwt": {"claims": claims}}, tenant_claim="org").principal == "ci"


@pytest.mark.parametrize(
    "tenant",
    ["auth0|5f7c8ec7c33c6c004bbafe82", "123456789012", "me@example.com", "a:b+c-d_e", "...", ".a"],
)
def test_a_tenant_may_be_what_issuers_call_their_subjects(tenant: str) -> None:
    assert identify(of_token(org=tenant), tenant_claim="org").tenant == tenant


@pytest.mark.parametrize(
    "tenant",
    [
        *(None, "", "a/b", "a#b", "a" * 65, ["acme"], 1),
        *(".", "..", "a b", "a\n", "..\n", "a\x00", "\x7f", "a\\b", "a*", "é", "a%2fb"),
    ],
)
def test_a_token_without_a_tenant_is_refused(tenant: object) -> None:
    with pytest.raises(NoTenantError, match="`org`"):
        identify(of_token(org=tenant), tenant_claim="org")


@pytest.mark.parametrize(
    "authorizer",
    [
        None,
        {},
        {"lambda": None},
        {"lambda": {}},
        of_key(tenant=None),
        of_key(tenant=""),
        of_key(tenant=5),
        of_key(keyId=None),
        of_key(keyId=""),
        of_key(scopes=None),
        of_key(scopes=["admin"]),
        {"iam": {}},
        {"iam": {"accountId": None}},
        {"jwt": {}},
        {"jwt": {"claims": {}}},
        of_token(),
        {"principalId": "acme"},
        {"tenant": "acme", "keyId": "k", "scopes": "admin"},
    ],
)
def test_a_request_without_an_identity_is_rejected(authorizer: dict[str, Any] | None) -> None:
    with pytest.raises(PermissionError):
        identify(authorizer)


@pytest.mark.parametrize(
    ("words", "scopes"),
    [
        ("", set()),
        ("openid profile", set()),
        ("read", {READ}),
        ("upload", {READ, UPLOAD}),
        ("run", {READ, RUN}),
        ("nextfire:run nextfire/upload", {READ, RUN, UPLOAD}),
        ("write", WRITES),
        ("admin", set(Scope)),
        ("  read \t write ", WRITES),
        ("nextfire/read nextfire:write", WRITES),
        ("other/admin", set()),
        ("ADMIN Read", set()),
        ("administrator readonly", set()),
    ],
)
def test_scopes_are_words_and_include_the_lesser_ones(words: str, scopes: set[Scope]) -> None:
    assert including(words) == scopes
