"""Runs that a benchmark sends itself, in place of a watcher."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from nextfire.domain.ids import RunKey
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.queues import RunQueue


def send(queue: RunQueue, runs: Sequence[RunKey], *, pool: str) -> None:
    """Send the first message of each of the *runs* of *pool*.

    Raises:
        RuntimeError: The queue did not accept all of them.
    """
    now = datetime.now(UTC)
    messages = [(pool, RunMessage.of(run, 1, now)) for run in runs]
    if len(queue.send(messages)) < len(runs):
        raise RuntimeError("the queue did not accept all messages")
