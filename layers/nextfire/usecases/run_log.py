"""Collects the output of a script and uploads it, so that it can be read while the script runs."""

from __future__ import annotations

import codecs
import threading
from collections import deque
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from datetime import datetime, timedelta

from nextfire.domain.ids import RunFolder
from nextfire.domain.log import PART_BYTES, LogLine, Stream, encode_line, ends_of, part_name
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.scripts import RunFiles

SHIP_AFTER = timedelta(seconds=3)
"""The output of a script that ends sooner is only on the record, unless it is large."""
SHIP_EVERY = timedelta(seconds=2)
MAX_LINE = 8 * 1024
"""Maximum bytes of a line; a longer one is split."""


class RunLog:
    """The log of one attempt. Parts are stored in the background, one request at a time; a caller
    waits for them only in `close`.
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
            files: Stores its parts.
            folder: Their folder.
            fence: Fence of the attempt.
            clock: Timestamps the lines.
            background: Runs the requests.
            cap: About how many bytes are kept; further output is cut, with a notice.
            inline_cap: Bytes of each stream up to which the run's record keeps all of it.
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
        self._turn = threading.Lock()  # to store: what `submit` queued may run although it failed
        self._full: deque[tuple[int, bytes]] = deque()
        self._part = bytearray()
        self._number = 0
        self._in_store = 0  # bytes of the current part that are stored
        self._shipped = False
        self._shipping: Future[None] | None = None
        self._ship_at = clock.now() + SHIP_AFTER

    def feed(self, stream: Stream, data: bytes) -> None:
        """Add *data*, a piece of any length."""
        self._printed[stream] += len(data)
        kept = data[: max(self._left, 0)]
        self._cut += len(data) - len(kept)
        if kept:
            self._append_lines(stream, self._lines[stream].feed(kept))

    def ship(self, now: datetime) -> None:
        """Start to store new output, if it is time. Does not wait."""
        # An instant that is further ahead is from before the clock was set back.
        early = now < self._ship_at <= now + SHIP_AFTER
        if early or (self._shipping is not None and not self._shipping.done()):
            return
        self._ship_at = now + SHIP_EVERY
        if self._full or len(self._part) > self._in_store:
            self._shipped = True
            with suppress(RuntimeError):  # no more threads, and no reason to fail the attempt
                self._shipping = self._background.submit(self._store, until=None)

    @property
    def is_short(self) -> bool:
        """Whether the run's record can hold all of it."""
        return not self._shipped and max(self._printed.values()) <= self._inline_cap

    def close(self, *, until: datetime, followed: bool) -> int:
        """Store the rest, until *until* at the latest, unless the run's record holds everything.

        Args:
            until: Output that is not stored by then is lost.
            followed: Whether another attempt follows, or may follow after a redrive; its output
                replaces this one on the record.

        Returns:
            The number of parts.
        """
        for stream, lines in self._lines.items():
            self._append_lines(stream, lines.rest())
        if self._cut:
            notice = f"… [{self._cut} bytes cut: the log is full] …"
            self._append(LogLine(self._clock.now(), "stderr", notice))
        if not self._part and not self._full:
            return self._number
        if self.is_short and not followed:
            return 0
        if self._shipping is not None:
            try:
                left = max(until - self._clock.now(), timedelta())
                self._shipping.result(left.total_seconds())
            except NotYetError:
                # The upload is still running. Readers omit a part that it does not store.
                return self._number + (1 if self._part else 0)
        self._store(until=until)
        return self._number + (1 if self._in_store else 0)

    def ends(self, stream: Stream, text: str) -> str:
        """What the record keeps of *stream*, which printed *text*, if the log has it all."""
        return ends_of(text, self._printed[stream])

    def _append_lines(self, stream: Stream, lines: list[str]) -> None:
        now = self._clock.now()
        for text in lines:
            if self._left > 0:
                self._append(LogLine(now, stream, text))
            else:
                self._cut += len(text) + 1

    def _append(self, line: LogLine) -> None:
        encoded = encode_line(line)
        self._left -= len(encoded)  # an empty line prints one byte and is stored as thirty
        with self._lock:
            self._part += encoded
            if len(self._part) >= PART_BYTES:
                self._full.append((self._number, bytes(self._part)))
                self._part.clear()
                self._number += 1
                self._in_store = 0

    def _store(self, *, until: datetime | None) -> None:
        """Store the full parts and the current one. Failures are retried the next time."""
        with self._turn:
            self._store_parts(until)

    def _store_parts(self, until: datetime | None) -> None:
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
                    if number == self._number:  # it may have become full in the meantime
                        self._in_store = len(data)
        except Exception:  # noqa: BLE001 — the outcome that follows matters more than the log
            return


class _Lines:
    """Splits pieces into lines. Bytes that are not UTF-8 become `?`."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._begun = ""

    def feed(self, data: bytes) -> list[str]:
        return self._split(self._decode(data))

    def rest(self) -> list[str]:
        """The rest at the end, without a line end."""
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
