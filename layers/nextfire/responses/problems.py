"""Responses that report an error."""

from __future__ import annotations

from typing import Literal

from nextfire.responses.base import ApiResponse


class InvalidField(ApiResponse):
    """An invalid field: its value, the problem, and how to fix it."""

    field: str
    value: str
    problem: str
    remedy: str


class Problem(ApiResponse):
    """An error, as problem details of RFC 9457."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str
    quota: (
        Literal[
            "jobs",
            "payloadBytes",
            "shortestIntervalSec",
            "requestsPerSecond",
            "keyRequestsPerSecond",
        ]
        | None
    )
    errors: list[InvalidField] | None
