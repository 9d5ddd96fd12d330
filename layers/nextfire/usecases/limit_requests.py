"""Decide whether a request is within its tenant's and its key's limit, at little cost.

Each process takes tokens in batches from a bucket that all processes share, and spends them without
asking again. A process that finds the bucket empty refuses by itself for a while. In any time T all
processes together admit at most `burst + per_second * T` requests, and one batch more for each
process that runs; clocks that differ by d add `per_second * d`.

A store that does not answer is not a reason to refuse: each process then applies the limit by
itself, so N processes together admit at most N times as much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nextfire.domain.ports import BucketStore
from nextfire.domain.request_limits import RequestLimit, take, to_us

ALONE_FOR = timedelta(seconds=5)
"""How long a process does not ask a store that did not answer."""
_MOST_HELD = 10_000
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Held:
    """What a process has of a bucket: `tokens` to spend, `next` to take. `alone`: its own bucket,
    for when the store does not answer.
    """

    tokens: int = 0
    next: int = 1
    empty_until: datetime = _LONG_AGO
    alone: int | None = None


class LimitRequests:
    """Counts the requests of one process. *report*: called with what the store answered instead."""

    def __init__(self, buckets: BucketStore, report: Callable[[Exception], None]) -> None:
        self._buckets = buckets
        self._report = report
        self._held: dict[str, _Held] = {}
        self._alone_until = _LONG_AGO

    def admit(self, name: str, limit: RequestLimit, now: datetime) -> timedelta | None:
        """Spend a token of the bucket *name*.

        Returns:
            None if there was one; else how long to wait before asking again.
        """
        held = self._of(name)
        if held.tokens > 0:
            held.tokens -= 1
            return None
        if now < held.empty_until:
            return held.empty_until - now
        if now < self._alone_until:
            return _alone(held, limit, now)
        try:
            taken = self._buckets.take(name, limit, held.next, now)
        except Exception as error:  # noqa: BLE001 — whatever it is, callers are not refused for it
            self._report(error)
            self._alone_until = now + ALONE_FOR
            return _alone(held, limit, now)
        if taken.tokens < held.next:
            # It is empty now. Once its last tokens are spent, this process asks again later.
            held.empty_until = now + max(taken.wait, limit.pause)
        if taken.tokens == 0:
            return held.empty_until - now
        held.next = min(held.next * 2, limit.batch)
        held.tokens = taken.tokens - 1
        return None

    def give_back(self, name: str) -> None:
        """Put back the token that `admit` spent: the request was refused for another reason."""
        self._of(name).tokens += 1

    def _of(self, name: str) -> _Held:
        if len(self._held) >= _MOST_HELD and name not in self._held:
            self._held.clear()
        return self._held.setdefault(name, _Held())


def _alone(held: _Held, limit: RequestLimit, now: datetime) -> timedelta | None:
    taken = take(held.alone, to_us(now), limit, 1)
    held.alone = taken.spent
    return None if taken.tokens else taken.wait
