"""Retry budget and backoff of requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from nextfire.dataclass import dataclass

_CAPACITY = 500
_COST = 5
_COST_OF_TIMEOUT = 10
_BASE = 0.05  # seconds
_BASE_OF_THROTTLING = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class FailureCause:
    """The cause of a failed request, as far as it matters for the retry."""

    timed_out: bool = False
    throttled: bool = False


class RetryBudget:
    """The token bucket of the AWS SDKs' standard mode, shared by the requests of a client."""

    def __init__(self) -> None:
        self._left = _CAPACITY
        self._lock = threading.Lock()

    def take(self, trouble: FailureCause) -> int:
        """Take the cost of one retry and return it; 0 if the budget is exhausted: do not retry."""
        cost = _COST_OF_TIMEOUT if trouble.timed_out else _COST
        with self._lock:
            if cost > self._left:
                return 0
            self._left -= cost
            return cost

    def put_back(self, cost: int) -> None:
        """Refund after a success: *cost*, that of the last retry, or 1 without a retry."""
        if self._left == _CAPACITY:
            return
        with self._lock:
            self._left = min(_CAPACITY, self._left + (cost or 1))


def backoff(
    attempt: int, trouble: FailureCause, rand: Callable[[], float] = random.random
) -> float:
    """Seconds to wait after the failed *attempt* (from 1): exponential backoff with full jitter."""
    base = _BASE_OF_THROTTLING if trouble.throttled else _BASE
    return rand() * base * float(2 ** (attempt - 1))
