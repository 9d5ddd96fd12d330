"""Repeats the part of a batch that DynamoDB throttled (`UnprocessedKeys`, `UnprocessedItems`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WRITE_LIMIT = 25  # requests of one BatchWriteItem, a limit of DynamoDB
_TRIES = 5  # requests in a row that process nothing
_FIRST_WAIT = 0.05  # maximum seconds before the second request; doubled before each further one
_PATIENCE = 5.0  # seconds after which nothing is sent again, even if some of it was processed


def retried(send: Callable[[list[T]], list[T]], batch: list[T]) -> list[T]:
    """Call *send* with *batch*, then with the things that it returns: those that were throttled.
    Before each further call, wait for a random time that doubles while nothing is processed.

    Returns:
        The things that are left after 5 calls in a row that processed none, or after 5 s.
    """
    left = batch
    failures = 0
    until = time.monotonic() + _PATIENCE
    while left and failures < _TRIES and (left is batch or time.monotonic() < until):
        if failures:
            time.sleep(random.uniform(0, _FIRST_WAIT * 2 ** (failures - 1)))  # noqa: S311 — not a secret
        rest = send(left)
        failures = 1 if len(rest) < len(left) else failures + 1
        left = rest
    return left
