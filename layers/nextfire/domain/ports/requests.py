"""Requests with an idempotency key, and rate limits of requests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from nextfire.dataclass import dataclass
from nextfire.domain.request_limits import RequestLimit, Taken

REQUESTS_KEPT = timedelta(hours=24)
"""How long an idempotency key refers to its first request."""


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """The first request with an idempotency key, received at `at`. `answer`: its response; None if
    not sent yet or too large to keep. `refused`: a part of it was reported as without
    effect.
    """

    fingerprint: str
    at: datetime
    answer: str | None
    refused: bool = False


class RequestStore(Protocol):
    """Stores requests with an idempotency key for `REQUESTS_KEPT`."""

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        """Store *tenant*'s request *key*, received at *now*, unless one is stored.

        Returns:
            None if stored; else the request that is stored.

        Raises:
            UndecodableError: The stored request does not decode.
        """

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        """Store *answer* as the response of the request that began at *began_at*, if it has none.

        Returns:
            The stored response: *answer*, or an earlier one.
        """

    def refuse(self, tenant: str, key: str, began_at: datetime) -> str | None:
        """Mark the request that began at *began_at* as refused, if it is still stored and has no
        answer.

        Returns:
            Its answer, if a concurrent repetition has stored one.
        """


class BucketStore(Protocol):
    """Stores named token buckets that all processes share."""

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        """Take up to *wanted* (≥ 1) tokens, following `request_limits.take`. Concurrent callers
        never get the same token. Takes at least one if one is available.

        Raises:
            UnavailableError: The store did not answer. Tokens may have been taken.
        """
