"""Concurrent calls in threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from tests.crons import LONG

T = TypeVar("T")

ROUNDS = range(100 if LONG else 3)
"""Number of repetitions of a race: a test cannot control which call comes first."""


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Run *calls* concurrently and return their results."""
    start = Barrier(len(calls))

    def go(call: Callable[[], T]) -> T:
        start.wait(20)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(go, calls))
