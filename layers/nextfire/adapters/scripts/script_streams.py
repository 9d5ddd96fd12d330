"""Reads a script's output with bounded memory."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol, Self

from nextfire.adapters.scripts.bounded_server import CpuThrottle

_READ_BYTES = 64 * 1024
_SHARE_OF_CORE = 0.02
"""Fraction of a core that one script's output, and its requests, may use after a burst: all runs of
the executor share the interpreter's lock.
"""
OUTPUT_BURST = 2.0
"""Seconds of CPU time: more than the 16 MiB that are kept take if they are lines of text."""
PAUSE = 0.2  # seconds at a time: the run is supervised in between
_LINE_BYTES = 1024
"""Kept of the beginning of a line whose end is in the kept end of a stream."""


class Source(Protocol):
    """A readable or writable object that a `Pump` polls."""

    def fileno(self) -> int:
        """The descriptor."""

    def events(self) -> int:
        """The `selectors` events to wait for; 0 if the source has ended."""

    def ready(self, events: int) -> None:
        """Process the available data without blocking."""


class Sink(Protocol):
    """Receives the data of a stream."""

    def __call__(self, data: bytes, /) -> None: ...


class Pace:
    """Makes a script wait that takes much of the executor's CPU time: to search its output for
    secrets can take a second for each megabyte.

    *burst*: seconds of CPU time without a wait. *over*: whether the program has ended; what its
    pipes still hold is read at once.
    """

    def __init__(self, burst: float, over: Callable[[], bool] = lambda: False) -> None:
        self._over = over
        self._spent = 0.0
        self._throttle = CpuThrottle(
            lambda: _SHARE_OF_CORE, now=time.monotonic(), spent=0.0, burst=burst
        )
        self._continues_at = 0.0

    def pauses(self) -> bool:
        """Wait a moment for the script's turn. Returns whether that was not long enough."""
        left = self._continues_at - time.monotonic()
        if left <= 0 or self._over():
            return False
        time.sleep(min(left, PAUSE))
        return left > PAUSE

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Context manager: counts its CPU time."""
        before = time.thread_time()
        yield
        self._spent += time.thread_time() - before
        now = time.monotonic()
        self._continues_at = now + self._throttle.delay(now=now, spent=self._spent)


class Stream:
    """The reading end of a pipe or a socket. Never closes it. *pace*: of a script's output."""

    def __init__(self, descriptor: int, sink: Sink, pace: Pace | None = None) -> None:
        # A script may open the pipe itself and take the data after the poll reports it.
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._sink = sink
        self._pace = pace
        self.ended = False

    def fileno(self) -> int:
        return self._descriptor

    def events(self) -> int:
        return 0 if self.ended else selectors.EVENT_READ

    def ready(self, _events: int) -> None:
        if self._pace is not None and self._pace.pauses():
            return
        with nullcontext() if self._pace is None else self._pace.measured():
            self._read()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if data:
            self._sink(data)
        else:
            self.ended = True


class Pump:
    """Polls several sources."""

    def __init__(self) -> None:
        # Not epoll: the kernel limits its watches per user, and scripts could exhaust them.
        self._selector = selectors.PollSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def add(self, source: Source) -> None:
        self._selector.register(source, source.events(), source)

    def step(self, timeout: float) -> None:
        """Wait up to *timeout* seconds for ready sources, and let them process their data."""
        for key, ready in self._selector.select(max(timeout, 0)):
            source: Source = key.data
            source.ready(ready)
            events = source.events()
            if not events:
                self._selector.unregister(source)
            elif events != key.events:
                self._selector.modify(source, events, source)

    def drain(self, at_most: float) -> None:
        """Read until all sources have ended, for *at_most* seconds."""
        until = time.monotonic() + at_most
        while self._selector.get_map() and (left := until - time.monotonic()) > 0:
            self.step(left)


class Capture:
    """Keeps the first and the last *cap* / 2 bytes of a stream, and where the line began in which
    the last ones start.
    """

    def __init__(self, cap: int) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._begun = bytearray()
        self._head_cap, self._tail_cap = cap // 2, cap - cap // 2
        self._cut = 0

    def feed(self, data: bytes) -> None:
        room = self._head_cap - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = max(len(self._tail) - self._tail_cap, 0)
        if excess:
            if not self._cut:
                self._begin_line(self._head, len(self._head))
            self._begin_line(self._tail, excess)
            self._cut += excess
            del self._tail[:excess]

    def text(self) -> str:
        if not self._cut:
            return _decode(self._head + self._tail)
        head, tail = _decode(self._head), _decode(self._tail)
        return f"{head}\n… [{self._cut} bytes cut] …\n{tail}"

    def last_lines(self) -> str:
        """The end of a stream that was cut, from the beginning of a line; of a long first line, the
        beginning and the end. Empty if nothing was cut.
        """
        if not self._cut:
            return ""
        if len(self._begun) < _LINE_BYTES:
            return _decode(self._begun + self._tail)
        return f"{_decode(self._begun)}…{_decode(self._tail)}"

    def _begin_line(self, data: bytearray, end: int) -> None:
        """Keep the beginning of the line that is unfinished after *data* until *end*."""
        start = max(data.rfind(b"\n", 0, end), data.rfind(b"\r", 0, end)) + 1
        if start:
            self._begun.clear()
        self._begun += data[start : min(end, start + _LINE_BYTES - len(self._begun))]


def _decode(data: bytearray) -> str:
    # Not U+FFFD: it takes three bytes, so binary output could be three times as long as the cap,
    # maybe too long for the run record.
    return data.decode(errors="replace").replace("\ufffd", "?")
