"""Rate limits of tenants and API keys, at low cost.

Each process takes tokens in batches from a bucket that all processes share, and spends them without
further requests. A process that finds the bucket empty rejects requests by itself for a while. In
any time T all processes together admit at most `burst + per_second * T` requests, plus one batch
per running process. Clocks that differ by d add `per_second * d`.

If the store does not answer, requests are not rejected for that: each process applies the limit by
itself, so N processes together admit up to N times as many requests.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.ports.requests import BucketStore
from nextfire.domain.request_limits import RequestLimit, take, to_us

ALONE_FOR = timedelta(seconds=5)
"""How long a process does not call a store that did not answer."""
_MAX_BUCKETS = 10_000
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Held:
    """The state of a bucket in one process. `tokens`: left to spend; `next`: how many to take next.
    `alone`: the local bucket, for when the store does not answer.
    """

    tokens: int = 0
    next: int = 1
    empty_until: datetime = _LONG_AGO
    alone: int | None = None


class LimitRequests:
    """Limits the requests of one process. *report*: called with an error of the store."""

    def __init__(self, buckets: BucketStore, report: Callable[[Exception], None]) -> None:
        self._buckets = buckets
        self._report = report
        self._held: dict[str, _Held] = {}
        self._alone_until = _LONG_AGO

    def admit(self, name: str, limit: RequestLimit, now: datetime) -> timedelta | None:
        """Spend a token of the bucket *name*.

        Returns:
            None if there was one; otherwise how long to wait before the next request.
        """
        held = self._of(name)
        if held.tokens > 0:
            held.tokens -= 1
            return None
        # An instant that is further ahead is from before the clock was set back.
        if now < held.empty_until <= now + limit.longest_wait:
            return held.empty_until - now
        if now < self._alone_until <= now + ALONE_FOR:
            return _take_locally(held, limit, now)
        try:
            taken = self._buckets.take(name, limit, held.next, now)
        except Exception as error:  # noqa: BLE001 — no failure of the store rejects requests
            self._report(error)
            self._alone_until = now + ALONE_FOR
            return _take_locally(held, limit, now)
        if taken.tokens < held.next:
            # The bucket is empty. When its last tokens are spent, this process asks again later.
            held.empty_until = now + max(taken.wait, limit.pause)
        if taken.tokens == 0:
            return held.empty_until - now
        held.next = min(held.next * 2, limit.batch)
        held.tokens = taken.tokens - 1
        return None

    def give_back(self, name: str) -> None:
        """Return the token that `admit` spent: the request was rejected for another reason."""
        self._of(name).tokens += 1

    def _of(self, name: str) -> _Held:
        if len(self._held) >= _MAX_BUCKETS and name not in self._held:
            self._held.clear()
        return self._held.setdefault(name, _Held())


def _take_locally(held: _Held, limit: RequestLimit, now: datetime) -> timedelta | None:
    taken = take(held.alone, to_us(now), limit, 1)
    held.alone = taken.spent
    return None if taken.tokens else taken.wait
