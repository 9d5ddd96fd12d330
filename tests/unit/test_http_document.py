"""The document of an HTTP callback: what a job may say, and what it must not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from nextfire.domain.target import Target, TargetKind
from nextfire.targets.http.document import HttpCall

URL = "https://api.example.com/hooks"
SECRET = {"secret": "token"}


def call(**fields: Any) -> HttpCall:
    return HttpCall.model_validate({"url": URL, **fields})


def problem(**fields: Any) -> str:
    with pytest.raises(ValidationError) as invalid:
        call(**fields)
    [first, *_] = invalid.value.errors()
    return f"{first['msg']} {first.get('ctx', {}).get('remedy', '')}"


def test_a_url_is_enough() -> None:
    found = call()

    assert (found.method, found.success, found.body, found.auth) == ("POST", ("2xx",), None, None)


@pytest.mark.parametrize(
    "auth",
    [
        {"type": "bearer", "token": "hunter2-inline"},
        {"type": "basic", "username": "me", "password": "hunter2-inline"},
        {"type": "apiKey", "header": "X-Api-Key", "value": "hunter2-inline"},
        {"type": "oauth2", "tokenUrl": URL, "clientId": "me", "clientSecret": "hunter2-inline"},
    ],
)
def test_an_inline_secret_is_rejected_with_instructions_to_store_it(auth: dict[str, str]) -> None:
    text = problem(auth=auth)

    assert "nextfire/pools/<pool>/<tenant>/NAME" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "name", ["Authorization", "cookie", "X-API-Key", "x-auth-token", "My-Secret", "Api-Key"]
)
def test_a_header_that_carries_a_credential_is_rejected(name: str) -> None:
    assert "auth" in problem(headers={name: "hunter2"})


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "content-length", "Transfer-Encoding", "Connection", "Idempotency-Key"),
        *("webhook-id", "Nextfire-Attempt", "traceparent", "Accept-Encoding", "TE"),
    ],
)
def test_headers_that_nextfire_sets_are_rejected(name: str) -> None:
    assert "set by nextfire" in problem(headers={name: "x"})


@pytest.mark.parametrize(
    "headers",
    [
        *({"a b": "x"}, {"": "x"}, {"a": "x\r\nHost: b"}, {"a": "x\x00"}, {"a": "\n"}),
        {"a": "1", "A": "2"},
        {"a": "x" * 9000},
        {f"a{n}": "" for n in range(51)},
    ],
)
def test_invalid_headers_are_rejected(headers: dict[str, str]) -> None:
    assert problem(headers=headers)


@pytest.mark.parametrize("text", ["", "2x", "6xx", "abc", "99", "600", "204-200", "2xx-3xx", "*"])
def test_invalid_status_codes_are_rejected(text: str) -> None:
    assert "2xx" in problem(success=[text])


@pytest.mark.parametrize(
    ("success", "statuses"),
    [
        (["2xx"], [200, 204, 299]),
        (["2xx", "409"], [200, 409]),
        (["200-204"], [200, 204]),
        (["304", "400-499"], [304, 404]),
    ],
)
def test_which_responses_are_a_success(success: list[str], statuses: list[int]) -> None:
    found = call(success=success)

    assert all(found.succeeds(status) for status in statuses)
    assert not found.succeeds(500)
    assert not found.succeeds(301)


def test_a_client_certificate_needs_its_key() -> None:
    assert "both" in problem(tls={"key": SECRET})
    assert call(tls={"certificate": SECRET, "key": SECRET}).tls is not None


def test_at_most_two_signing_secrets() -> None:
    assert len(call(sign=[SECRET, SECRET]).sign) == 2
    assert problem(sign=[SECRET] * 3)


TARGETS: dict[TargetKind, dict[str, Any]] = {
    TargetKind.SCRIPT: {"handler": "report"},
    TargetKind.HTTP: {"http": {"url": URL}},
    TargetKind.AWS: {"aws": {"service": "sqs", "action": "SendMessage"}},
}


@pytest.mark.parametrize("kind", TargetKind)
def test_a_target_is_of_one_kind(kind: TargetKind) -> None:
    assert kind in TARGETS, "add a target of the new kind to TARGETS"
    assert Target.model_validate(TARGETS[kind]).kind is kind


@pytest.mark.parametrize("kind", TargetKind)
def test_a_kind_has_a_noun_for_messages(kind: TargetKind) -> None:
    assert kind.noun


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"handler": "report", "http": {"url": URL}},
        {"http": {"url": URL}, "aws": {"service": "sqs", "action": "SendMessage"}},
        {"http": {"url": URL}, "env": {"A": "b"}},
    ],
)
def test_a_target_of_no_or_two_kinds_is_rejected(target: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Target.model_validate(target)


@pytest.mark.parametrize("service", ["iam", "sts", "organizations", "sso", "signin"])
def test_a_callback_is_not_signed_for_services_that_manage_identities(service: str) -> None:
    auth = {"type": "sigv4", "service": service, "region": "us-east-1"}

    with pytest.raises(ValidationError, match="manage identities"):
        HttpCall.model_validate({"url": "https://sts.amazonaws.com/?Action=X", "auth": auth})
