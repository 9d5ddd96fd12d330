"""Requests that may be sent again: what bears an `Idempotency-Key` is done once, however often it
comes.

The first request leaves its instant in the table `requests`. All that a request makes is named
after its key and that instant, so one that comes again (also where the first died between its
effect and its answer) makes nothing new; if the answer was kept, it gets that one. Nothing is ever
"in progress": of requests at the same time each does the same, once in effect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from nextfire.domain.errors import InvalidInputError
from nextfire.domain.instants import cut
from nextfire.domain.ports import RequestStore

KEY = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Once:
    """A request. `at`: when it came first. `again`: it came before, and may have had its effect.
    `refused`: so it did, and was told that it had none. `answer`: what was answered then, if that
    was kept.
    """

    at: datetime
    seed: str
    again: bool
    refused: bool = False
    answer: str | None = None

    @property
    def asked_before(self) -> datetime | None:
        """When it came first, if that may be when it has its effect: not if it was refused then."""
        return self.at if self.again and not self.refused else None

    def token(self, what: str) -> str:
        """16 hexadecimal digits, for each *what* others, and the same whenever it comes again."""
        return hashlib.sha256(f"{self.seed}#{what}".encode()).hexdigest()[:16]


class AnswerOnce:
    """The requests of *tenant* that bear *key*. *realm*: the callers that share answers; one of
    another realm gets none of them.
    """

    def __init__(self, requests: RequestStore, tenant: str, key: str, *, realm: str = "") -> None:
        self._requests = requests
        self._tenant = tenant
        self._shown = key
        # No key holds a space.
        self._key = f"{key} {realm}" if realm else key

    def begin(self, fingerprint: str, now: datetime) -> Once:
        """The request that comes *now*, as it came first. Its *fingerprint* is the same whenever it
        comes.

        Raises:
            InvalidInputError: The key came with another request.
        """
        at = cut(now)
        kept = self._requests.begin(self._tenant, self._key, fingerprint, at)
        if kept is not None and kept.fingerprint != fingerprint:
            raise InvalidInputError(
                KEY,
                self._shown,
                "came before with another request",
                "Use a new key for a new request.",
            )
        if kept is None:
            return Once(at, self._seed(at), again=False)
        return Once(kept.at, self._seed(kept.at), True, kept.refused, kept.answer)

    def finish(self, asked: Once, answer: str) -> str:
        """Keep *answer* for when *asked* comes again.

        Returns:
            What to answer: the same for all who ask.
        """
        return self._requests.finish(self._tenant, self._key, asked.at, answer)

    def refuse(self, asked: Once) -> None:
        """Keep that *asked*, or some of it, was told to have no effect."""
        if not asked.refused:
            self._requests.refuse(self._tenant, self._key, asked.at)

    def _seed(self, at: datetime) -> str:
        return f"{self._tenant}#{self._key}#{at.isoformat()}"
