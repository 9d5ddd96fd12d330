"""The ends of parents in memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from datetime import datetime

from nextfire.domain.ids import JobKey, RunKey


class MemoryJoinStore:
    """`JoinStore`. `writes`: the number of additions to each item."""

    def __init__(self) -> None:
        self.items: dict[tuple[RunKey, int], set[str]] = {}
        self.begun: dict[JobKey, set[str]] = {}
        self.writes: Counter[tuple[RunKey, int]] = Counter()
        self._lock = threading.Lock()

    def add(self, run: RunKey, group: int, mark: str, now: datetime) -> Collection[str]:  # noqa: ARG002
        with self._lock:
            self.writes[run, group] += 1
            self.items.setdefault((run, group), set()).add(mark)
            return sorted(self.items[run, group])

    def read(self, run: RunKey, groups: Collection[int]) -> Collection[str]:
        with self._lock:
            return [mark for each in groups for mark in sorted(self.items.get((run, each), ()))]

    def begin_sequence(self, first: RunKey, most: int, now: datetime) -> bool:  # noqa: ARG002
        with self._lock:
            begun = self.begun.setdefault(first.job, set())
            if len(begun) < most:
                begun.add(first.run_id)
            return first.run_id in begun

    def begun_sequences(self, job: JobKey) -> Collection[str]:
        with self._lock:
            return sorted(self.begun.get(job, ()))

    def end_sequences(self, job: JobKey, first: Collection[str]) -> None:
        with self._lock:
            self.begun.get(job, set()).difference_update(first)
