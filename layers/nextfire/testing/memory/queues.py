"""The queues of pools in memory, and their dead-letter queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from copy import copy
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.message import RunMessage
from nextfire.domain.ports.queues import DEDUP_WINDOW, MAX_FAILURE
from nextfire.testing.memory.clock import Clock


@dataclass(slots=True)
class _Message:
    body: str
    group: str
    message_id: str
    visible_at: datetime
    receipt: int = 0
    receives: int = 0


class MemoryFifo:
    """A FIFO queue: deduplication within message groups, order within groups, visibility timeouts.
    A receipt expires as soon as its message becomes visible again.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._messages: list[_Message] = []
        self._sent: dict[tuple[str, str], datetime] = {}
        self._receipts = self._ids = 0
        self._lock = threading.Lock()
        self.order: Callable[[str], float] = lambda _: 0
        """Rank of a group: lower ranks are delivered first. Within a group, messages keep their
        order.
        """

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def bodies(self) -> list[str]:
        """The messages in the queue, visible or not, oldest first."""
        return [message.body for message in self._messages]

    @property
    def next_visible_at(self) -> datetime | None:
        """When the next hidden message becomes visible; None: no message is hidden."""
        now = self._clock.now()
        return min((m.visible_at for m in self._messages if m.visible_at > now), default=None)

    def send(self, body: str, *, group: str, dedup: str) -> None:
        with self._lock:
            now = self._clock.now()
            if now - self._sent.get((group, dedup), now - DEDUP_WINDOW) >= DEDUP_WINDOW:
                self._sent[group, dedup] = now
                self._ids += 1
                self._messages.append(_Message(body, group, f"message-{self._ids}", now))

    def purge(self) -> None:
        """Delete all messages, as an operator may do by hand."""
        with self._lock:
            self._messages.clear()

    def receive(self, most: int, *, hidden_for: timedelta) -> list[MemoryDelivery]:
        """Receive up to *most* messages; none of a group with a message in flight."""
        with self._lock:
            now = self._clock.now()
            busy = {m.group for m in self._messages if m.visible_at > now}
            free = [m for m in self._messages if m.group not in busy]
            ranks = {group: self.order(group) for group in dict.fromkeys(m.group for m in free)}
            # in sending order within a group
            taken = sorted(free, key=lambda m: ranks[m.group])[:most]
            return [self._deliver(message, now + hidden_for) for message in taken]

    def hide(self, message: _Message, receipt: int, duration: timedelta) -> None:
        with self._lock:
            now = self._clock.now()
            if message.receipt == receipt and message.visible_at > now:
                message.visible_at = now + max(duration, timedelta())

    def delete(self, message: _Message, receipt: int) -> None:
        with self._lock:
            ours = message.receipt == receipt and message.visible_at > self._clock.now()
            if ours and message in self._messages:
                self._messages.remove(message)
                message.receipt = -1

    def _deliver(self, message: _Message, visible_at: datetime) -> MemoryDelivery:
        self._receipts += 1
        message.receipt, message.visible_at = self._receipts, visible_at
        message.receives += 1
        return MemoryDelivery(
            message.body,
            self,
            message,
            self._receipts,
            message.message_id,
            message.group,
            message.receives,
        )


@dataclass(slots=True)
class MemoryDelivery:
    """`Delivery`, with the id and the group of a `FifoDelivery`."""

    body: str
    queue: MemoryFifo
    message: _Message
    receipt: int
    message_id: str
    group: str
    receives: int = 1

    @property
    def token(self) -> str:
        return f"{self.queue.name}-{self.message_id}-{self.receipt}"

    def hide(self, duration: timedelta) -> None:
        self.queue.hide(self.message, self.receipt, duration)

    def acknowledge(self) -> None:
        self.queue.delete(self.message, self.receipt)


class MemoryRunQueue:
    """`RunQueue` with one queue for each of *pools*. `log`: the accepted messages, in order."""

    def __init__(self, clock: Clock, pools: Collection[str] = ("default",)) -> None:
        self.queues = {pool: MemoryFifo(pool, clock) for pool in pools}
        self.log: list[RunMessage] = []
        self.refuses: Callable[[RunMessage], bool] = lambda _: False

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        sent = set()
        for index, (pool, message) in enumerate(messages):
            if pool not in self.queues or self.refuses(message):
                continue
            self.queues[pool].send(
                message.encode(),
                group=message.group,
                dedup=message.dedup,
            )
            self.log.append(message)
            sent.add(index)
        return sent

    def of(self, *pools: str) -> MemoryRunQueue:
        """The sending side of the queues of *pools* alone: executors have that of their pool."""
        alone = copy(self)
        alone.queues = {pool: self.queues[pool] for pool in pools}
        return alone

    def backlog(self, pool: str) -> int:
        return len(self.queues[pool]) if pool in self.queues else 0


class MemoryDeadLetters:
    """`DeadLetters`. `letters` are pairs of body and failure."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, datetime] = {}
        self.letters: list[tuple[str, str]] = []

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        now = self._clock.now()
        if now - self._sent.get(dedup, now - DEDUP_WINDOW) >= DEDUP_WINDOW:
            self._sent[dedup] = now
            self.letters.append((body, failure[:MAX_FAILURE] or "-"))
