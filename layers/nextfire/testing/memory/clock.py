"""A clock that only a test moves."""

from __future__ import annotations

from datetime import datetime, timedelta

_NO_WAIT = timedelta()


class Clock:
    """`Clock` that moves only when a test moves it."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def advance(self, by: timedelta = _NO_WAIT, /, **units: float) -> datetime:
        """Advance by *by* plus *units* (``seconds=2``)."""
        return self.move_to(self._at + by + timedelta(**units))

    def move_to(self, at: datetime) -> datetime:
        self._at = at
        return at

    def sleep(self, duration: timedelta) -> None:
        self.advance(duration)
