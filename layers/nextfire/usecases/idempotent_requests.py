"""Idempotent requests: a request with an `Idempotency-Key` takes effect once, however often it is
sent.

The first request stores its instant in the table `requests`. Everything that a request creates has
an id derived from its key and that instant. So a repeated request creates nothing new, even if the
first one crashed between its effect and its response. If the response was stored, it is returned
again. No request is ever "in progress": concurrent requests all do the same work, which takes
effect once.
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut
from nextfire.domain.ports.requests import RequestStore

KEY = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request. `at`: when it was first sent. `again`: it was sent before and may have taken
    effect. `refused`: it was sent before and the response said that it had no effect. `answer`: the
    earlier response, if it was stored.
    """

    at: datetime
    seed: str
    again: bool
    refused: bool = False
    answer: str | None = None

    @property
    def first_sent_at(self) -> datetime | None:
        """When it was first sent, if it may have taken effect then; None if it was refused."""
        return self.at if self.again and not self.refused else None

    def token(self, what: str) -> str:
        """16 hex digits: different for each *what*, the same each time the request is repeated."""
        return hashlib.sha256(f"{self.seed}#{what}".encode()).hexdigest()[:16]


class IdempotentRequests:
    """The requests of *tenant* with the idempotency key *key*. *realm*: the callers that share
    responses; callers of other realms never get them.
    """

    def __init__(self, requests: RequestStore, tenant: str, key: str, *, realm: str = "") -> None:
        self._requests = requests
        self._tenant = tenant
        self._shown = key
        # Keys never contain a space.
        self._key = f"{key} {realm}" if realm else key

    def begin(self, fingerprint: str, now: datetime) -> IdempotentRequest:
        """Start a request, or recognize a repeated one. *fingerprint* identifies its content.

        Raises:
            InvalidInputError: The key was used before with a different request.
            UndecodableError: The stored request does not decode.
        """
        at = cut(now)
        kept = self._requests.begin(self._tenant, self._key, fingerprint, at)
        if kept is not None and kept.fingerprint != fingerprint:
            raise InvalidInputError(
                KEY,
                self._shown,
                "was used before with a different request",
                "Use a new key for each new request.",
            )
        if kept is None:
            return IdempotentRequest(at, self._seed(at), again=False)
        return IdempotentRequest(kept.at, self._seed(kept.at), True, kept.refused, kept.answer)

    def finish(self, asked: IdempotentRequest, answer: str) -> str:
        """Store *answer* for repetitions of *asked*.

        Returns:
            The response to send: the same for all repetitions.
        """
        return self._requests.finish(self._tenant, self._key, asked.at, answer)

    def refuse(self, asked: IdempotentRequest) -> str | None:
        """Store that *asked*, or a part of it, was reported to have no effect.

        Returns:
            The response to send instead, if a concurrent repetition of *asked* stored one.
        """
        if asked.refused:
            return None
        return self._requests.refuse(self._tenant, self._key, asked.at)

    def _seed(self, at: datetime) -> str:
        return f"{self._tenant}#{self._key}#{at.isoformat()}"
