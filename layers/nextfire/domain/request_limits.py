"""Token buckets: how many requests a tenant or a key may make.

A bucket is one number, `spent`: the instant, in microseconds, at which it would be full again. A
full bucket holds `burst` tokens and gains `per_second` each second. Taking tokens moves `spent` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_SECOND = 1_000_000
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class RequestLimit:
    """`per_second`, `burst`: see above; both ≥ 1."""

    per_second: int
    burst: int

    @property
    def batch(self) -> int:
        """Tokens that one instance takes at once at most: few enough that others find some."""
        return min(max(self.burst // 4, 1), _MOST_AT_ONCE)

    @property
    def pause(self) -> timedelta:
        """How long an instance refuses by itself after it found the bucket empty: until it is half
        full, and a second at most, so that nothing of the rate is lost.
        """
        refilled = self.cost(max(self.burst // 2, 1)) * _MICROSECOND
        return min(refilled, timedelta(seconds=1))

    def cost(self, tokens: int) -> int:
        """By how much taking *tokens* moves `spent`, in microseconds."""
        return tokens * _SECOND // self.per_second

    def most(self, now: int) -> int:
        """The largest value that `spent` may have at *now*: the bucket is empty."""
        return now + self.cost(self.burst)


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken of a bucket. `tokens`: 0 if it is empty; `wait`: then, until it has one.
    `spent`: its state afterwards.
    """

    tokens: int
    wait: timedelta
    spent: int


def take(spent: int | None, now: int, limit: RequestLimit, wanted: int) -> Taken:
    """Take up to *wanted* (≥ 1) tokens of the bucket *spent* at *now*. None: a new, full bucket."""
    since = now if spent is None else max(spent, now)
    left = limit.most(now) - since
    tokens = min(wanted, max(left, 0) * limit.per_second // _SECOND)
    # By rounding, a token may cost a microsecond less than its share.
    if tokens < wanted and limit.cost(tokens + 1) <= left:
        tokens += 1
    if tokens == 0:
        return Taken(0, (limit.cost(1) - left) * _MICROSECOND, since)
    return Taken(tokens, timedelta(), since + limit.cost(tokens))


def to_us(at: datetime) -> int:
    """*at* in microseconds."""
    return (at - _EPOCH) // _MICROSECOND
