"""The queues of the pools, and what a worker holds of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

from nextfire.domain.message import RunMessage

DEDUP_WINDOW = timedelta(minutes=5)
"""How long a queue drops repetitions of a message, by SQS."""
MAX_RECEIVES = 1_000
"""After this number of receives, a message goes to the dead-letter queue: the maximum of SQS. The
run record ends a run, not the number of receives of its message."""
MAX_FAILURE = 1_000
"""Characters of a failure that a dead-letter queue keeps."""


class RunQueue(Protocol):
    """The sending side of the pools' FIFO queues."""

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        """Send each message to its pool's queue, deduplicated by run, dispatch and message group.

        Returns:
            The indexes of the accepted messages. A pool that does not exist accepts none.
        """

    def backlog(self, pool: str) -> int:
        """Approximate number of messages in *pool*'s queue, including those in flight; 0 if the
        queue does not exist.
        """


class Delivery(Protocol):
    """One received message. `receives`: how often it was received so far, this time included."""

    body: str
    receives: int

    @property
    def token(self) -> str:
        """Identifies claims made for this receive of the message. Each receive has a new one."""

    def hide(self, duration: timedelta) -> None:
        """Hide the message from other consumers for *duration* (0 … 12 h) from now. No effect if
        the receipt has expired.
        """


class FifoDelivery(Delivery, Protocol):
    """One received message of a FIFO queue. `group`: its message group, within which messages are
    delivered in order.
    """

    message_id: str
    group: str


D = TypeVar("D", bound=FifoDelivery)
D_contra = TypeVar("D_contra", bound=FifoDelivery, contravariant=True)


class Inbox(Protocol[D]):
    """Receives and deletes the messages of one pool's queue."""

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> Sequence[D]:
        """Receive up to *most* (1 … 10) messages and hide them from other consumers for
        *hidden_for*. Waits up to *wait* (0 … 20 s) for the first one.
        """

    def acknowledge(self, deliveries: Sequence[D], /) -> Sequence[str]:
        """Delete *deliveries*, at most 10. Messages that are not deleted are redelivered.

        Returns:
            One text for each deletion that was rejected, with the reason.
        """


class Journal(Protocol[D_contra]):
    """Lists the messages that a worker holds, in storage that outlives the worker's process; see
    `ReturnHeld`. Thread-safe. Never raises: if it is full, further messages are not listed.
    """

    def hold(self, deliveries: Sequence[D_contra], /) -> None:
        """Add *deliveries*, which were received."""

    def release(self, deliveries: Sequence[D_contra], /) -> None:
        """Remove *deliveries*: they were deleted, or left in the queue."""


class DeadLetters(Protocol):
    """The pool's dead-letter queue."""

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        """Send *body* with its *failure*. Messages with the same *dedup* within `DEDUP_WINDOW`
        are merged.
        """
