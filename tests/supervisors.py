"""Whom scripts' runners report to, in tests."""

from __future__ import annotations

from collections.abc import Callable

from nextfire.domain.log import Stream
from nextfire.domain.ports import Verdict


class Watch:
    """`Supervisor`: keeps what it is given."""

    def __init__(self, ask: Callable[[], Verdict] = lambda: Verdict.GO_ON) -> None:
        self.ask = ask
        self.told: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self.saved: bytes | None = None
        self.refusal: str | None = None

    def output(self, stream: Stream, data: bytes) -> None:
        self.told[stream] += data

    def checkpoint(self) -> bytes | None:
        return self.saved

    def save(self, checkpoint: bytes) -> str | None:
        if self.refusal is None:
            self.saved = checkpoint
        return self.refusal
