"""Deletes the messages that are done: those that come within a moment, with one request."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import Self

from nextfire.adapters.run_queue import SqsDelivery, SqsInbox
from nextfire.wiring.telemetry import Telemetry

_TOGETHER = 0.05
"""Seconds for which the first one waits for others."""
_AT_MOST = 10


class Acknowledger:
    """Deletes in a thread of its own, within a `with`; at its end all is done.

    A message that is not deleted, whatever the reason, comes again and finds its run ended: so
    nobody waits for this.
    """

    def __init__(self, inbox: SqsInbox, telemetry: Telemetry) -> None:
        self._inbox = inbox
        self._telemetry = telemetry
        self._done: SimpleQueue[SqsDelivery | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._delete, name="acknowledger", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.put(None)
        self._thread.join()

    def put(self, delivery: SqsDelivery) -> None:
        """Have *delivery* deleted soon."""
        self._done.put(delivery)

    def _delete(self) -> None:
        over = False
        while not over:
            first = self._done.get()
            if first is None:
                return
            together, until = [first], time.monotonic() + _TOGETHER
            while len(together) < _AT_MOST:
                try:
                    following = self._done.get(timeout=max(until - time.monotonic(), 0))
                except Empty:
                    break
                if following is None:
                    over = True
                    break
                together.append(following)
            self._acknowledge(together)

    def _acknowledge(self, deliveries: list[SqsDelivery]) -> None:
        try:
            refused = self._inbox.acknowledge(deliveries)
        except Exception as error:
            self._telemetry.logger.warning("not acknowledged", exc_info=error)
        else:
            if refused:
                self._telemetry.logger.warning("not acknowledged", messages=refused)
