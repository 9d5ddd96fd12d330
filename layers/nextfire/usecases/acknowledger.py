"""Deletes completed messages from the queue, in batches."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from datetime import timedelta
from typing import Generic

from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.queues import D, Inbox, Journal
from nextfire.domain.ports.worker import Notices

_GATHER_FOR = timedelta(milliseconds=50)
"""How long the first message waits for others to share its request."""
_MAX_BATCH = 10


class Acknowledger(Generic[D]):
    """Deletes messages in *background*, one request at a time if that has a single thread.

    A message that is not deleted, for whatever reason, is redelivered and finds its run ended.
    So nothing waits for the deletion. Until then it stays in the *journal*, because a hidden
    message blocks its group.
    """

    def __init__(
        self,
        inbox: Inbox[D],
        background: Executor,
        clock: Clock,
        notices: Notices,
        journal: Journal[D],
    ) -> None:
        self._journal = journal
        self._inbox = inbox
        self._background = background
        self._clock = clock
        self._notices = notices
        self._lock = threading.RLock()  # an executor may run the task immediately, in this thread
        self._done: list[D] = []
        self._planned: Future[None] | None = None

    def put(self, delivery: D) -> None:
        """Queue *delivery* for deletion. Thread-safe."""
        with self._lock:
            self._done.append(delivery)
            if len(self._done) == 1 or self._planned is None:
                with suppress(RuntimeError):  # no more threads: with the next message
                    self._planned = self._background.submit(self._delete)

    def close(self) -> None:
        """Wait until everything is deleted. `put` must not be called afterwards."""
        if self._planned is not None:
            self._planned.result()

    def _delete(self) -> None:
        self._clock.sleep(_GATHER_FOR)
        with self._lock:
            done, self._done = self._done, []
        for first in range(0, len(done), _MAX_BATCH):
            self._acknowledge(done[first : first + _MAX_BATCH])

    def _acknowledge(self, deliveries: Sequence[D]) -> None:
        try:
            refused = self._inbox.acknowledge(deliveries)
        except Exception as error:  # noqa: BLE001 — the messages are redelivered
            self._notices.warn("not acknowledged", error)
        else:
            if refused:
                self._notices.warn("not acknowledged", ", ".join(refused))
        self._journal.release(deliveries)
