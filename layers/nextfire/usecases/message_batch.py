"""Process FIFO queue messages that were received together, in order per group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Generic, Protocol

from nextfire.dataclass import dataclass
from nextfire.domain.errors import UnavailableError
from nextfire.domain.jitter import spread
from nextfire.domain.ports.queues import D, FifoDelivery
from nextfire.domain.ports.worker import Notices
from nextfire.usecases.execute_run import ExecuteRun
from nextfire.usecases.handled import Disposition, Handled


class MessageNotices(Notices, Protocol):
    """Reports the outcomes of an executor's messages."""

    def handled(self, handled: Handled) -> None:
        """Count and log the outcome of one message."""


@dataclass(frozen=True, slots=True)
class MessageBatch(Generic[D]):
    """Processes messages in order. The Lambda function and the worker share it.

    Args:
        execute_run: Processes one message.
        notices: Receives outcomes and errors.
        lease: Hide messages for this long; None if they were received hidden for it. A message that
            is received for the first time is hidden only if its run takes more than a moment, or if
            it stays in the queue; a repeated message at once: its run may have lost its executor.
        done: Called with each message that is done and may be deleted.
    """

    execute_run: ExecuteRun
    notices: MessageNotices
    lease: timedelta | None = None
    done: Callable[[D], object] = lambda _: None

    def carry_out(
        self,
        messages: Sequence[D],
        *,
        stopping: Callable[[], bool],
        longest: timedelta = timedelta.max,
        may_begin: Callable[[], bool] = lambda: True,
    ) -> list[D]:
        """Process *messages* in order.

        When a message stays in the queue, the later messages of its group are not started and are
        made visible at the end, because SQS delivers nothing of a group while one of its messages
        is hidden. The same applies to all messages that are not started when *stopping* becomes
        true, or *may_begin* false.

        Args:
            messages: The messages, in the order of their delivery.
            stopping: Whether this process ends soon; see `ExecuteRun.handle`.
            longest: Maximum duration of a script here; see `ExecuteRun.handle`.
            may_begin: Called before each message but the first: whether it may still begin.

        Returns:
            The messages that stay in the queue, in their order.
        """
        stay: list[D] = []
        behind: list[D] = []
        blocked: set[str] = set()
        stopped = False  # `ExecuteRun` itself hands back the first message if necessary
        for message in messages:
            stopped = stopped or (message is not messages[0] and not may_begin())
            begins = not stopped and message.group not in blocked
            if not (begins and self._carry_out_one(message, stopping, longest)):
                stay.append(message)
                blocked.add(message.group)
            if not begins:
                behind.append(message)
            stopped = stopped or stopping()
        for message in behind:
            self._hide(message, timedelta())
        return stay

    def _carry_out_one(self, message: D, stopping: Callable[[], bool], longest: timedelta) -> bool:
        """Process *message*. Returns whether it is done."""
        noted = _Noted(message, message.body, message.token, message.receives)
        try:
            if self.lease is not None and message.receives > 1:
                noted.hide(self.lease)
            handled = self.execute_run.handle(
                noted,
                stopping=stopping,
                longest=longest,
                hidden_longer=self.lease is not None and not noted.hidden,
            )
            self.notices.handled(handled)
        except UnavailableError as error:
            self.notices.warn("stays in the queue", error)
            self._hide(message, _again_after(message))
            return False
        except Exception as error:  # noqa: BLE001 — the messages of other groups continue
            self.notices.fail("stays in the queue", error)
            self._hide_for_lease(noted)
            return False
        if handled.disposition is Disposition.LEAVE:
            self._hide_for_lease(noted)
            return False
        self.done(message)
        return True

    def _hide_for_lease(self, noted: _Noted) -> None:
        """Hide a message that stays in the queue for a lease, unless it was hidden on purpose."""
        if self.lease is not None and not noted.hidden:
            self._hide(noted.message, self.lease)

    def _hide(self, message: FifoDelivery, duration: timedelta) -> None:
        try:
            message.hide(duration)
        except Exception as error:  # noqa: BLE001 — redelivered when its visibility timeout ends
            self.notices.warn("not handed back", error)


@dataclass(slots=True)
class _Noted:
    """`Delivery` that notes whether its visibility timeout was changed."""

    message: FifoDelivery
    body: str
    token: str
    receives: int
    hidden: bool = False

    def hide(self, duration: timedelta) -> None:
        self.message.hide(duration)
        self.hidden = True


_FIRST_AGAIN = timedelta(seconds=4)
_LAST_AGAIN = timedelta(seconds=60)


def _again_after(message: FifoDelivery) -> timedelta:
    """How long *message* stays hidden after a service did not answer: 2 to 4 s at first, doubled
    with each receive up to 30 to 60 s. SQS gives up a message after 1,000 receives: after 12 hours
    of this. Random, so that the messages of an outage do not return together.
    """
    longest = min(_FIRST_AGAIN * (1 << min(message.receives - 1, 10)), _LAST_AGAIN)
    return longest / 2 + spread(message.token, longest / 2)
