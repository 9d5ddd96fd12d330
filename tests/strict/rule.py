"""What all rules share: settings, clock, dice, counters, and the emulator."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.strict.exchange import Answer, Call, Proceed, Upstream
from tests.strict.strictness import Strictness


@dataclass
class Circumstances:
    """Shared state of the rules. `acted`: how often each rule acted, with the operation."""

    upstream: Upstream
    strictness: Strictness
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    acted: Counter[tuple[str, str]] = field(default_factory=Counter)
    _rolled: Counter[tuple[str, str]] = field(default_factory=Counter)

    def act(self, rule: str, call: Call, times: int = 1) -> None:
        """Count that *rule* acted on *call*."""
        self.acted[rule, f"{call.service}.{call.operation}"] += times

    def dice(self, rule: str, call: Call) -> random.Random:
        """A generator for this call: the same for the n-th roll of a rule for an operation."""
        what = f"{call.service}.{call.operation}"
        self._rolled[rule, what] += 1
        number = self._rolled[rule, what]
        return random.Random(f"{self.strictness.seed} {rule} {what} {number}")  # noqa: S311


class Rule(Protocol):
    """One rule of the stand-in. `name`: as in the table of limits."""

    name: str

    async def apply(self, call: Call, proceed: Proceed) -> Answer:
        """Answer *call*, as a rule by *proceed*."""


class TokenBucket:
    """*rate* units per second, at first those of one second, and at most those of the last *saved*
    seconds at once. May be in debt: the cost of a call is known only after it.
    """

    def __init__(self, rate: float, now: float, *, saved: float = 1) -> None:
        self._rate = rate
        self._most = rate * saved
        self._level = rate
        self._at = now

    def has(self, now: float) -> bool:
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
        return self._level > 0

    def take(self, units: float) -> None:
        self._level -= units
