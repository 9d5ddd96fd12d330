"""Requests and their rates in memory."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime

from nextfire.domain.errors import UndecodableError
from nextfire.domain.ports.requests import REQUESTS_KEPT, KeptRequest
from nextfire.domain.request_limits import RequestLimit, Taken, take, to_us

NEVER = datetime.max.replace(tzinfo=UTC)


class MemoryBucketStore:
    """`BucketStore`. `asked`: number of calls."""

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}
        self._lock = threading.Lock()
        self.asked = 0

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        with self._lock:
            self.asked += 1
            taken = take(self._spent.get(name), to_us(now), limit, wanted)
            if taken.tokens:
                self._spent[name] = taken.spent
            return taken


class MemoryRequestStore:
    """`RequestStore`."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], KeptRequest] = {}
        self._lock = threading.Lock()

    def spoil(self, tenant: str, key: str) -> None:
        """Make the item of a request undecodable."""
        self.items[tenant, key] = KeptRequest("", NEVER, None)

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        with self._lock:
            kept = self.items.get((tenant, key))
            if kept is not None and kept.at == NEVER:
                raise UndecodableError("request does not decode")
            if kept is not None and now < kept.at + REQUESTS_KEPT:
                return kept
            self.items[tenant, key] = KeptRequest(fingerprint, now, None)
            return None

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        with self._lock:
            kept = self.items.get((tenant, key))
            if kept is None or kept.at != began_at:
                return answer
            if kept.answer is None:
                self.items[tenant, key] = replace(kept, answer=answer)
            return kept.answer or answer

    def refuse(self, tenant: str, key: str, began_at: datetime) -> str | None:
        with self._lock:
            kept = self.items.get((tenant, key))
            if kept is None or kept.at != began_at:
                return None
            if kept.answer is None:
                self.items[tenant, key] = replace(kept, refused=True)
            return kept.answer
