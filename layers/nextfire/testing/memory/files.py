"""Logs, results and checkpoints in memory; events."""

from __future__ import annotations

from nextfire.domain.errors import UnavailableError
from nextfire.domain.events import Event
from nextfire.domain.ids import RunFolder


class MemoryRunFiles:
    """`RunFiles`. `puts`: number of writes; while `broken`, writes fail."""

    def __init__(self) -> None:
        self.stored: dict[tuple[RunFolder, str], bytes] = {}
        self.puts = 0
        self.broken = False

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        if self.broken:
            raise UnavailableError("put run file: SlowDown. Try again.")
        self.puts += 1
        self.stored[folder, name] = data

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        return self.stored.get((folder, name))


class MemoryEvents:
    """`Events` that keeps the published events."""

    def __init__(self) -> None:
        self.published: list[Event] = []

    def put(self, event: Event) -> None:
        self.published.append(event)
