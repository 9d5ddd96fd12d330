"""Endpoints of HTTP callbacks in tests of the API: one destination, and calls about it."""

from __future__ import annotations

from typing import Any

from nextfire.usecases.breaker import Breaker
from tests.integration.deployment import CALLS, TENANT, Answer

HOST = "api.example.com:443"
PATH = f"/v1/endpoints/{CALLS}/{HOST}"
CLOSED = {"pool": CALLS, "destination": HOST, "state": "CLOSED", "failures": 0}


def done(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.document
    return answer.document


def fail(breaker: Breaker, host: str = HOST, times: int = 5, tenant: str = TENANT) -> None:
    for _ in range(times):
        breaker.report(tenant, host, "down")
