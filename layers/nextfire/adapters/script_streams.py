"""Reading what a script writes, without ever holding more of it than is kept."""

from __future__ import annotations

import os
import selectors
import time
from typing import Protocol, Self

_READ_BYTES = 64 * 1024


class Source(Protocol):
    """Something that a `Pump` watches."""

    def fileno(self) -> int:
        """Its descriptor."""

    def events(self) -> int:
        """What to wait for, of `selectors`' events; 0: it has ended."""

    def ready(self, events: int) -> None:
        """Take what there is, without waiting for more."""


class Sink(Protocol):
    """Where what a stream brings goes."""

    def __call__(self, data: bytes, /) -> None: ...


class Stream:
    """The reading end of a pipe or a socket. Closes it never."""

    def __init__(self, descriptor: int, sink: Sink) -> None:
        # A script may open its own pipe and take what we were told is there.
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._sink = sink
        self.ended = False

    def fileno(self) -> int:
        return self._descriptor

    def events(self) -> int:
        return 0 if self.ended else selectors.EVENT_READ

    def ready(self, _events: int) -> None:
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
    """Waits for several sources at once."""

    def __init__(self) -> None:
        # Not epoll: the kernel counts its watches by user, and scripts could use them up.
        self._selector = selectors.PollSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def add(self, source: Source) -> None:
        self._selector.register(source, source.events(), source)

    def step(self, timeout: float) -> None:
        """Wait up to *timeout* seconds until a source is ready, and have it take what there is."""
        for key, ready in self._selector.select(max(timeout, 0)):
            source: Source = key.data
            source.ready(ready)
            events = source.events()
            if not events:
                self._selector.unregister(source)
            elif events != key.events:
                self._selector.modify(source, events, source)

    def drain(self, at_most: float) -> None:
        """Read on until all sources have ended, *at_most* so many seconds."""
        until = time.monotonic() + at_most
        while self._selector.get_map() and (left := until - time.monotonic()) > 0:
            self.step(left)


class Capture:
    """The first and the last half of a stream: never more than *cap* bytes of it."""

    def __init__(self, cap: int) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._head_cap, self._tail_cap = cap // 2, cap - cap // 2
        self._cut = 0

    def feed(self, data: bytes) -> None:
        room = self._head_cap - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = max(len(self._tail) - self._tail_cap, 0)
        self._cut += excess
        del self._tail[:excess]

    def text(self) -> str:
        if not self._cut:
            return _decode(self._head + self._tail)
        head, tail = _decode(self._head), _decode(self._tail)
        return f"{head}\n… [{self._cut} bytes cut] …\n{tail}"


def _decode(data: bytearray) -> str:
    # Not U+FFFD: its three bytes would make a text of binary output thrice as long as the cap, too
    # long perhaps for the run's record.
    return data.decode(errors="replace").replace("\ufffd", "?")
