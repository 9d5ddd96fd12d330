"""Calls that are made at the same moment, in threads of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from tests.crons import LONG

T = TypeVar("T")

ROUNDS = range(100 if LONG else 3)
"""How often a race is run: who comes first is not for the test to say."""


def at_once(*calls: Callable[[], T]) -> list[T]:
    """What each of *calls* returned."""
    start = Barrier(len(calls))

    def go(call: Callable[[], T]) -> T:
        start.wait(20)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(go, calls))
