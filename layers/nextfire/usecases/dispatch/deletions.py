"""Deletes the due entries that were handled.

What a throttled table leaves is kept in memory and deleted later: to handle the entry again would
send its run again and write its successor again, which costs a throttled table more.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Executor, Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from nextfire.domain.due import Slot
from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.due import DueStore
from nextfire.usecases.dispatch.holding import HeldEntries

_AT_ONCE = 200
"""Deletions of one retry."""
_FIRST_WAIT = timedelta(milliseconds=100)
_LONGEST_WAIT = timedelta(seconds=4)


class Deletions:
    """Deletes entries; used by several threads. While some are left, one retry at a time runs on
    *lanes*, and batches add theirs instead of competing with it.

    A watcher that dies or loses its lease leaves them to its successor, which handles them again:
    the queue drops the repeated messages.
    """

    def __init__(self, due: DueStore, holding: HeldEntries, clock: Clock, lanes: Executor) -> None:
        self._due = due
        self._holding = holding
        self._clock = clock
        self._lanes = lanes
        self._wait = _FIRST_WAIT
        self._again_at = datetime.min.replace(tzinfo=UTC)
        self._retry: Future[None] | None = None

    @property
    def next_at(self) -> datetime | None:
        """When to retry; None while a retry runs, or if nothing is left."""
        runs = self._retry is not None and not self._retry.done()
        return None if runs or not self._holding.undeleted(1) else self._again_at

    def delete(self, slots: Collection[Slot]) -> int:
        """Delete *slots*, or keep them for a retry. Returns how many a failed try has left."""
        if self._holding.undeleted(1):
            self._holding.keep_undeleted(slots)
            return 0
        self._again_at = self._clock.now() + _FIRST_WAIT  # counts only if something is left
        return self._delete(slots)

    def retry(self, now: datetime) -> None:
        """Start to delete what is left, if it is time. Called at each release."""
        if self._retry is not None:
            if not self._retry.done():
                return
            self.finish()
        slots = self._holding.undeleted(_AT_ONCE)
        if slots and now >= self._again_at:
            self._retry = self._lanes.submit(self._delete_again, slots, now)

    def finish(self) -> None:
        """Wait for the retry that runs."""
        retry, self._retry = self._retry, None
        if retry is not None:
            retry.result()

    def _delete_again(self, slots: list[Slot], now: datetime) -> None:
        left = self._delete(slots)
        self._wait = min(2 * self._wait, _LONGEST_WAIT) if left == len(slots) else _FIRST_WAIT
        self._again_at = now + self._wait if left else now

    def _delete(self, slots: Collection[Slot]) -> int:
        deleted: set[Slot] = set()
        with suppress(UnavailableError):  # the next retry tries again
            deleted = self._due.delete(slots)
        self._holding.deleted(deleted, self._clock.now())
        left = [slot for slot in slots if slot not in deleted]
        self._holding.keep_undeleted(left)
        return len(left)
