"""The local clock, and its comparison with AWS's."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The wall clock. Injected, so that tests can move it."""

    def now(self) -> datetime:
        """The current instant: aware, in UTC."""

    def sleep(self, duration: timedelta) -> None:
        """Sleep for *duration*."""


class ServiceClock(Protocol):
    """Compares this machine's clock with the queue service's clock."""

    def deviation(self) -> timedelta:
        """Return a lower bound of the deviation. Positive: this machine's clock is ahead; negative:
        it is behind; 0: no deviation can be shown.

        Raises:
            Exception: The service did not answer, or rejected the request.
        """
