"""Supervisors for tests of script runners."""

from __future__ import annotations

from collections.abc import Callable

from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import Directive


class Watch:
    """`Supervisor` that records its calls."""

    def __init__(self, ask: Callable[[], Directive] = lambda: Directive.CONTINUE) -> None:
        self.ask = ask
        self.printed: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.saved: bytes | None = None
        self.refusal: str | None = None

    def output(self, stream: Stream, data: bytes) -> None:
        self.printed[stream] += data

    def checkpoint(self) -> bytes | None:
        return self.saved

    def save(self, checkpoint: bytes) -> str | None:
        if self.refusal is None:
            self.saved = checkpoint
        return self.refusal
