"""Deterministic random delays: spread over a width by a hash."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from nextfire.domain.instants import MOMENT, to_ms


def jitter(key: str, occurrence: datetime, width: timedelta) -> timedelta:
    """The delay from *occurrence* to the due instant of its run: whole milliseconds, 0 ≤ d <
    *width*.

    Deterministic: a hash of *key* (the `uid` of the job) and the occurrence.
    """
    return spread(f"{key}\x1f{to_ms(occurrence)}", width)


def spread(seed: str, width: timedelta) -> timedelta:
    """A duration from a hash of *seed*: whole milliseconds, 0 ≤ d < *width*; 0 if *width* is 0."""
    steps = width // MOMENT
    if steps <= 0:
        return timedelta()
    digest = hashlib.blake2s(seed.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % steps * MOMENT
