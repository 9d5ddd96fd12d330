"""The event bus and the audit log."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from nextfire.domain.chain import Batch
from nextfire.domain.events import Event


class Events(Protocol):
    """The stack's event bus."""

    def put(self, event: Event) -> None:
        """Publish *event*."""


class AuditLog(Protocol):
    """Stores the audit chain; see `nextfire.domain.chain`."""

    def last(self) -> Batch | None:
        """Return the newest batch, or one that was the newest recently; None: the log is empty.

        Raises:
            UnavailableError: The store did not answer.
            BrokenChainError: The batch does not decode.
        """

    def ids_since(self, last: Batch | None, since: datetime) -> Collection[str]:
        """Return the ids of events in *last* and earlier batches that were written at or after
        *since*. Raises the same errors as `last`.
        """

    def append(self, batch: Batch) -> bool:
        """Store *batch*, unless a batch with its number exists. Of concurrent writers one succeeds.

        Returns:
            Whether it was stored. If not, `last` reads the newest batch again.

        Raises:
            UnavailableError: The store did not answer. The batch may be stored.
        """
