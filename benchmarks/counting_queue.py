"""A queue that only counts messages: for models whose histories have millions of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nextfire.domain.ids import JobKey
from nextfire.domain.message import RunMessage


@dataclass(slots=True)
class CountingQueue:
    """`RunQueue` that only counts messages, each run once. `sent`: instant, job, occurrence.
    `takes`: whether it accepts a message.
    """

    now: Callable[[], datetime]
    sent: list[tuple[datetime, JobKey, datetime]] = field(default_factory=list)
    takes: Callable[[RunMessage], bool] = lambda _: True
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        now = self.now()
        taken = {i for i, (_, message) in enumerate(messages) if self.takes(message)}
        for index in sorted(taken):
            _, message = messages[index]
            of = (f"{message.job_id} {message.run_id}", message.dispatch)
            if of not in self._seen:
                self._seen.add(of)
                key = message.key
                self.sent.append((now, key.job, key.scheduled_at))
        return taken

    def backlog(self, pool: str) -> int:  # noqa: ARG002
        return 0
