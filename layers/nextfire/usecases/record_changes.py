"""Append changes to the audit chain, each change once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from nextfire.domain.chain import START, Batch, chain
from nextfire.domain.change import ItemChange
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import isoformat
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.events import AuditLog

CLOCK_SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of DynamoDB and of the function."""
_TRIES = 200
"""Some 20 s. Lambda divides a batch that fails, and smaller batches need more turns."""


class RecordChanges:
    """Appends changes to the chain exactly once; the table streams deliver them at least once."""

    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    def record(self, changes: Sequence[ItemChange]) -> int:
        """Append those of *changes* that are not in the chain yet, as one batch.

        Safe with concurrent writers: one of them gets the next place in the chain, the others retry
        after it.

        Returns:
            The number of events appended; 0 if all of them had been delivered before.

        Raises:
            UnavailableError: The log did not answer, or other writers kept winning. Redeliver the
                changes.
            BrokenChainError: A batch does not decode.
        """
        distinct = {change.id: change for change in changes}
        if not distinct:
            return 0
        # A batch that was written before the oldest change cannot hold any of them.
        since = min(change.written_at for change in changes) - CLOCK_SKEW
        for _ in range(_TRIES):
            last = self._log.last()
            known = self._log.ids_since(last, since)
            new = [change for change in distinct.values() if change.id not in known]
            if not new:
                return 0
            recorded_at = isoformat(self._clock.now())
            events = chain(
                (change.body(recorded_at) for change in new), last.end if last else START
            )
            if self._log.append(Batch((last.number if last else 0) + 1, events)):
                return len(new)
        raise UnavailableError("append audit events: other writers were faster. Try again.")
