"""Token buckets that limit the request rate of a tenant or a key.

A bucket is one number, `spent`: the instant, in microseconds, at which it would be full again. A
full bucket holds `burst` tokens. A bucket gains `per_second` tokens each second. Taking tokens
moves `spent` forward.

A `spent` that the limit cannot reach is from another limit, which an operator has changed, or from
a clock that was set back. The bucket then counts as full: otherwise it could stay empty for hours.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.instants import EPOCH

_SECOND = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_MOST_AT_ONCE = 20
_CLOCKS_DIFFER = 60 * _SECOND
"""Maximum difference between the clocks of processes, in microseconds."""


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """Rate and size of a bucket; see the module docstring. Both are ≥ 1."""

    per_second: int
    burst: int

    @property
    def batch(self) -> int:
        """Maximum number of tokens that one instance takes at once, so that others get some too."""
        return min(max(self.burst // 4, 1), _MOST_AT_ONCE)

    @property
    def pause(self) -> timedelta:
        """How long an instance rejects requests locally after it found the bucket empty: until the
        bucket is half full, but at most one second, so that no part of the rate is lost.
        """
        refilled = self.cost(max(self.burst // 2, 1)) * _MICROSECOND
        return min(refilled, timedelta(seconds=1))

    def cost(self, tokens: int) -> int:
        """Microseconds by which taking *tokens* moves `spent`."""
        return tokens * _SECOND // self.per_second

    def most(self, now: int) -> int:
        """The largest value of `spent` at *now*, when the bucket is empty."""
        return now + self.cost(self.burst)

    @property
    def longest_wait(self) -> timedelta:
        """Maximum time until an empty bucket has a token."""
        return (self.cost(1) + _CLOCKS_DIFFER) * _MICROSECOND

    def unreachable(self, now: int) -> int:
        """From which value of `spent` on the bucket counts as full at *now*."""
        return self.most(now) + _CLOCKS_DIFFER

    def is_full(self, spent: int, now: int) -> bool:
        """Whether the bucket with the state *spent* holds `burst` tokens at *now*."""
        return spent <= now or spent >= self.unreachable(now)


@dataclass(frozen=True, slots=True)
class Taken:
    """The outcome of taking tokens. `tokens`: number of tokens taken; 0 if the bucket is empty.
    `wait`: if the bucket is empty, the time until it has a token. `spent`: the new state of the
    bucket.
    """

    tokens: int
    wait: timedelta
    spent: int


def take(spent: int | None, now: int, limit: RequestLimit, wanted: int) -> Taken:
    """Take up to *wanted* (≥ 1) tokens at *now* from the bucket with the state *spent*; None: a
    new, full bucket.
    """
    since = now if spent is None or limit.is_full(spent, now) else spent
    left = limit.most(now) - since
    tokens = min(wanted, max(left, 0) * limit.per_second // _SECOND)
    # Rounding can make a token one microsecond cheaper than its share.
    if tokens < wanted and limit.cost(tokens + 1) <= left:
        tokens += 1
    if tokens == 0:
        return Taken(0, (limit.cost(1) - left) * _MICROSECOND, since)
    return Taken(tokens, timedelta(), since + limit.cost(tokens))


def to_us(at: datetime) -> int:
    """*at* in microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND
