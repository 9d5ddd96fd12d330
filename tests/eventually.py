"""Waiting for what other processes and threads do. Where a clock can be moved, move it instead."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether *condition* becomes true within 20 s."""
    until = time.monotonic() + 20
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.01)
    return met
