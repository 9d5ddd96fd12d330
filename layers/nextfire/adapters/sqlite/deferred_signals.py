"""Keeps signal handlers that raise, as a worker's do when it is stopped, out of a transaction."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def signals_deferred() -> Iterator[list[int]]:
    """Context manager: SIGTERM and SIGINT wait; the first of them is raised at the end. Yields the
    list of those that came. Does nothing outside the main thread, where Python takes no signals.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in _STOPS
        if callable(signal.getsignal(number))
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
