"""Services of the process that executes runs."""

from __future__ import annotations

from typing import Protocol


class TaskProtection(Protocol):
    """Protects this process from scale-in while it works."""

    def keep(self, *, working: bool) -> None:
        """Enable protection while *working*, and disable it otherwise. Called often, by one
        thread.
        """


class TaskDeployment(Protocol):
    """The deployment that this process belongs to."""

    def is_replaced(self) -> bool:
        """Whether workers of a newer deployment run in its place; False if that is unknown. Called
        often, by one thread.
        """


class Notices(Protocol):
    """Where a loop reports errors that do not end it. Thread-safe."""

    def warn(self, what: str, why: Exception | str) -> None:
        """Report an error that needs no action: the loop retries."""

    def fail(self, what: str, why: Exception | str) -> None:
        """Report an error that an operator has to look at."""
