"""Starts watchers."""

from __future__ import annotations

from typing import Protocol


class Waker(Protocol):
    """Starts watchers, which sleep when nothing is due."""

    def wake(self, group: int) -> None:
        """Request a watcher of *group*. It starts within about a second, or never: a lost request
        is not repeated.

        Raises:
            UnavailableError: The request was not accepted, as far as is known.
        """
