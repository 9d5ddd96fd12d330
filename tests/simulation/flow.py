"""What a flow is.

A flow is a function of the history that begins at a random moment. Its API requests go through
`History.request`: each is a separate process, interleaved with all others at each port call, and
may die like them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
    UndecodableError,
)
from nextfire.domain.ids import JobKey

if TYPE_CHECKING:
    from tests.simulation.history import History


REFUSALS = (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    QuotaUsedUpError,
    UnavailableError,
    UndecodableError,
)
"""Errors that the API may raise to a caller."""

TENANTS = ("acme", "bolt")
MOST_CHANGES = 12
"""Changes of a schedule in one history: more than the eight versions that a job remembers."""


@dataclass(frozen=True, slots=True)
class Flow:
    """`weight`: its frequency relative to the others."""

    name: str
    weight: int
    begin: Callable[[History], None]


@dataclass(slots=True)
class ManualRunRequest:
    """A manual run, requested once or more. `answers`: the execution ids returned; `requests`: the
    request tokens used.
    """

    job: JobKey
    payload: str | None
    requests: set[str] = field(default_factory=set)
    answers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class KeyedCreation:
    """A job created under an idempotency key, in any number of requests. `bodies`: the two request
    bodies; `uids`: the uids used; `answers`: by index of the body.
    """

    name: str
    tenant: str
    bodies: list[JobDefinition]
    uids: set[str] = field(default_factory=set)
    answers: dict[int, list[str]] = field(default_factory=lambda: {0: [], 1: []})
