"""Endpoints of HTTP callbacks: forms of a destination, and input that is rejected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api_endpoints import HOST, PATH, done
from tests.integration.deployment import CALLS, Deployment


@pytest.mark.parametrize(
    "body",
    [
        *({"perMinute": 0}, {"perMinute": 6001}, {"perMinute": "x"}, {"parallel": 0}),
        *({"parallel": 101}, {"parallel": 1.5}, {"perSecond": 1}),
        *({"perMinute": "60"}, {"parallel": True}),
    ],
)
def test_an_invalid_limit_is_rejected(system: Deployment, body: dict[str, Any]) -> None:
    answer = system.call("POST", f"{PATH}/limit", body)

    assert answer.status == 422, answer.document
    assert [error["field"] for error in answer.document["errors"]] == [*body]


@pytest.mark.parametrize(
    "form", ["api.example.com", "API.example.com:443", "api.example.com%3A443", "api.example.com."]
)
def test_a_destination_has_several_forms(system: Deployment, form: str) -> None:
    path = f"/v1/endpoints/{CALLS}/{form}"

    assert done(system.call("POST", f"{path}/pause"))["destination"] == HOST
    assert done(system.call("GET", PATH))["state"] == "PAUSED"


@pytest.mark.parametrize("form", ["[2001:db8::1]:8443", "%5B2001%3Adb8%3A%3A1%5D%3A8443"])
def test_a_destination_may_be_an_address(system: Deployment, form: str) -> None:
    answer = done(system.call("POST", f"/v1/endpoints/{CALLS}/{form}/pause"))

    assert answer["destination"] == "[2001:db8::1]:8443"


@pytest.mark.parametrize(
    "form", ["a:0", "a:65536", "a b", "https:", "a:", "-a", "2001:db8::1", "%2F", "a%2Fb", "ä.com"]
)
@pytest.mark.parametrize("action", ["", "/pause", "/resume", "/limit"])
def test_an_invalid_destination_is_rejected(system: Deployment, form: str, action: str) -> None:
    path = f"/v1/endpoints/{CALLS}/{form}{action}"

    answer = system.call("POST" if action else "GET", path)

    assert answer.status == 422, answer.document
    [error] = answer.document["errors"]
    assert error["field"] == "destination"
    assert "HOST:PORT" in error["remedy"]


@pytest.mark.parametrize("action", ["pause", "resume", "limit"])
def test_a_pool_of_scripts_has_no_endpoints(system: Deployment, action: str) -> None:
    answer = system.call("POST", f"/v1/endpoints/default/{HOST}/{action}")

    assert answer.status == 422, answer.document
    [error] = answer.document["errors"]
    assert (error["field"], error["value"]) == ("pool", "'default'")
    assert f"Pools for calls: {CALLS}." in error["remedy"]


@pytest.mark.parametrize("action", ["", "/pause", "/resume", "/limit"])
def test_an_unknown_pool_is_not_found(system: Deployment, action: str) -> None:
    answer = system.call("POST" if action else "GET", f"/v1/endpoints/nowhere/{HOST}{action}")

    assert answer.status == 404
    assert f"Available: default, {CALLS}." in answer.document["detail"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"pool": "nowhere"}, "pool"),
        ({"pool": ""}, "pool"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "nowhere."}, "cursor"),
        ({"cursor": "default.x"}, "cursor"),
        ({"limit": "101"}, "limit"),
        ({"state": "OPEN"}, "state"),
    ],
)
def test_an_invalid_query_is_rejected(
    system: Deployment, query: dict[str, str], field: str
) -> None:
    answer = system.call("GET", "/v1/endpoints", query=query)

    assert answer.status == 422, answer.document
    assert [error["field"] for error in answer.document["errors"]] == [field]


@pytest.mark.parametrize("body", [{"reason": ""}, {"reason": "a\nb"}, {"until": "2026-05-25"}])
def test_an_invalid_reason_is_rejected(system: Deployment, body: dict[str, str]) -> None:
    assert system.call("POST", f"{PATH}/pause", body).status == 422
    assert done(system.call("GET", PATH))["state"] == "CLOSED"


@pytest.mark.parametrize(("action", "body"), [("pause", {}), ("limit", {"parallel": 1})])
def test_a_pool_that_makes_no_calls_is_rejected(
    system: Deployment, action: str, body: dict[str, Any]
) -> None:
    answer = system.call("POST", f"/v1/endpoints/default/{HOST}/{action}", body)

    assert (answer.status, answer.fault["field"]) == (422, "pool")
    assert answer.fault["problem"] == "the pool runs scripts, not calls"
    assert answer.fault["remedy"] == f"Pools for calls: {CALLS}."
