"""Keeps what a script prints, and brings it where it can be read while the script runs."""

from __future__ import annotations

import codecs
import threading
from collections import deque
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as NotYetError
from datetime import datetime, timedelta

from nextfire.domain.ids import RunFolder
from nextfire.domain.log import PART_BYTES, LogLine, Stream, encode_line, part_name
from nextfire.domain.ports import Clock, RunFiles

SHIP_AFTER = timedelta(seconds=3)
"""A script that ends sooner has its output on the record only, unless there is much of it."""
SHIP_EVERY = timedelta(seconds=2)
MAX_LINE = 8 * 1024
"""Bytes; what is longer is several lines."""


class RunLog:
    """The log of one attempt. Parts are stored in the background, one request at a time; whoever
    feeds it waits for none of them but at the end.
    """

    def __init__(
        self,
        files: RunFiles,
        folder: RunFolder,
        fence: int,
        *,
        clock: Clock,
        background: Executor,
        cap: int,
        inline_cap: int,
    ) -> None:
        """Begin a log.

        Args:
            files: Where its parts go.
            folder: Where in them.
            fence: Under which the attempt is made.
            clock: Says when a line was read.
            background: Carries out the requests.
            cap: About how many bytes are kept; what is printed beyond is cut, with a notice.
            inline_cap: Bytes of each stream that the run's record keeps.
        """
        self._files = files
        self._folder = folder
        self._fence = fence
        self._clock = clock
        self._background = background
        self._left = cap
        self._cut = 0
        self._inline_cap = inline_cap
        self._printed: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._lines: dict[Stream, _Lines] = {"stdout": _Lines(), "stderr": _Lines()}
        self._lock = threading.Lock()  # of the parts, which the background reads
        self._full: deque[tuple[int, bytes]] = deque()
        self._part = bytearray()
        self._number = 0
        self._in_store = 0  # bytes of the part under way
        self._shipped = False
        self._shipping: Future[None] | None = None
        self._ship_at = clock.now() + SHIP_AFTER

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take *data* in, a piece of any length."""
        self._printed[stream] += len(data)
        kept = data[: max(self._left, 0)]
        self._cut += len(data) - len(kept)
        if kept:
            self._enter(stream, self._lines[stream].feed(kept))

    def ship(self, now: datetime) -> None:
        """Have what is new stored, if it is time. Returns at once."""
        if now < self._ship_at or (self._shipping is not None and not self._shipping.done()):
            return
        self._ship_at = now + SHIP_EVERY
        if self._full or len(self._part) > self._in_store:
            self._shipped = True
            self._shipping = self._background.submit(self._store, until=None)

    def close(self, *, until: datetime, followed: bool) -> int:
        """Store what is left, by *until* at the latest, unless the run's record holds it all.

        Args:
            until: When it is given up: what is not stored then is lost.
            followed: Another attempt follows, whose output takes the place on the record.

        Returns:
            How many parts there are.
        """
        for stream, lines in self._lines.items():
            self._enter(stream, lines.rest())
        if self._cut:
            notice = f"… [{self._cut} bytes cut: the log is full] …"
            self._append(LogLine(self._clock.now(), "stderr", notice))
        fits = not self._shipped and max(self._printed.values()) <= self._inline_cap
        if not self._part and not self._full:
            return self._number
        if fits and not followed:
            return 0
        if self._shipping is not None:
            try:
                left = max(until - self._clock.now(), timedelta())
                self._shipping.result(left.total_seconds())
            except NotYetError:
                return self._number  # it still writes: leave the rest to it
        self._store(until=until)
        return self._number + (1 if self._in_store else 0)

    def _enter(self, stream: Stream, lines: list[str]) -> None:
        now = self._clock.now()
        for text in lines:
            if self._left > 0:
                self._append(LogLine(now, stream, text))
            else:
                self._cut += len(text) + 1

    def _append(self, line: LogLine) -> None:
        encoded = encode_line(line)
        self._left -= len(encoded)  # an empty line is one byte printed, and thirty kept
        with self._lock:
            self._part += encoded
            if len(self._part) >= PART_BYTES:
                self._full.append((self._number, bytes(self._part)))
                self._part.clear()
                self._number += 1
                self._in_store = 0

    def _store(self, *, until: datetime | None) -> None:
        """Store the full parts and the one under way. What fails is tried again the next time."""
        try:
            while self._full:
                if until is not None and self._clock.now() >= until:
                    return
                number, data = self._full[0]
                self._files.put(self._folder, part_name(self._fence, number), data)
                self._full.popleft()
            with self._lock:
                number, data = self._number, bytes(self._part)
            if data:
                self._files.put(self._folder, part_name(self._fence, number), data)
                with self._lock:
                    if number == self._number:  # it may have become full meanwhile
                        self._in_store = len(data)
        except Exception:  # noqa: BLE001 — a log is worth less than the outcome that follows it
            return


class _Lines:
    """Makes lines of pieces. Bytes that are no UTF-8 become `?`."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._begun = ""

    def feed(self, data: bytes) -> list[str]:
        return self._split(self._decode(data))

    def rest(self) -> list[str]:
        """What is left at the end, which no line's end follows."""
        lines = self._split(self._decode(b"", final=True))
        last, self._begun = self._begun, ""
        return [*lines, last] if last else lines

    def _split(self, text: str) -> list[str]:
        *whole, self._begun = (self._begun + text.replace("\ufffd", "?")).split("\n")
        lines = [piece for line in whole for piece in _pieces(line.removesuffix("\r"))]
        while len(self._begun) > MAX_LINE:
            lines.append(self._begun[:MAX_LINE])
            self._begun = self._begun[MAX_LINE:]
        return lines


def _pieces(line: str) -> list[str]:
    return [line[i : i + MAX_LINE] for i in range(0, len(line), MAX_LINE)] or [""]
