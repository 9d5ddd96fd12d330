"""The projector: adds what the stream of the runs delivers to the overview."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from nextfire.domain.errors import UnavailableError, UndecodableError
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import (
    LOGS,
    MAX_STEPS,
    OPEN_LOG,
    WINDOW_MS,
    Head,
    Seen,
    Step,
    is_late,
    segments_of,
    since_ms,
    step_of,
    still_open,
)
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.overview import SegmentStore
from nextfire.domain.ports.runs import RunStore

FOLD_EVERY = timedelta(minutes=10)
"""Maximum age of a snapshot when a batch arrives: readers of open runs read what follows it."""
FOLD_BYTES = 256 * 1024
"""Maximum size of what follows a snapshot; more if the snapshot is larger."""
END_MS = 10**13 - 1
"""After all windows, in the year 2286: the last instant of 13 digits."""
_PART_BYTES = 40 * 1024
"""Usual size of a part of a snapshot."""
_FORGOTTEN = timedelta(days=400)
"""An open run without a step for this long has lost its record, which expires earlier."""
_TRIES = 20


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The steps of a tenant's open runs, with later steps that may have ended them. `seen_ms`,
    `lag_ms`: when the stream received the newest step, and how long it took to be written.
    """

    steps: list[Step]
    seen_ms: int
    lag_ms: int


def read_open(store: SegmentStore, tenant: str, head: Head | None) -> OpenRuns | None:
    """The open runs according to *head* and what was written after it; None if a later head
    replaced *head* meanwhile.
    """
    steps: list[Step] = []
    seen, lag, since = 0, 0, 0
    if head is not None:
        snapshot = store.snapshot(tenant, head)
        if snapshot is None:
            return None
        steps += snapshot
        seen, since = head.seen_ms, head.since_ms
    for log in LOGS:
        # The clocks of an executor and of the stream differ: the end of a run may be in a window
        # before the one in which the stream received its start.
        first = since if log == OPEN_LOG else since - WINDOW_MS
        for segment in store.read(tenant, log, max(first, 0), END_MS):
            steps += segment.steps
            if segment.seen_ms >= seen:
                seen, lag = segment.seen_ms, segment.written_ms - segment.seen_ms
    return OpenRuns(steps, seen, lag)


class ProjectRuns:
    """Adds steps of runs to the overview. Thread-unsafe.

    Each call may be interrupted anywhere and repeated: segments have names that depend on the
    record of the stream only, and a snapshot replaces the one from which it was made, or nothing.
    """

    def __init__(self, store: SegmentStore, runs: RunStore, clock: Clock) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._written: Counter[str] = Counter()
        self.undecodable: dict[str, str] = {}
        """Tenants whose snapshot or its head does not decode, and why. Their segments are written,
        but no snapshot replaces the old one; other tenants are not affected.
        """

    def apply(self, records: Iterable[Seen]) -> list[str]:
        """Add *records*, in the order of their stream.

        Returns:
            The ids of records from which on the stream has to be delivered again: the first one of
            each tenant whose steps could not be stored.
        """
        of_tenants: dict[str, list[Seen]] = {}
        for each in records:
            of_tenants.setdefault(each.tenant, []).append(each)
        failed = []
        for tenant, seen in of_tenants.items():
            try:
                self._apply(tenant, seen)
            except UnavailableError:
                failed.append(seen[0].id)
            except UndecodableError as error:
                self.undecodable[tenant] = str(error)
        return failed

    def _apply(self, tenant: str, seen: Sequence[Seen]) -> None:
        segments = segments_of(seen, self._clock.now())
        self._written[tenant] += self._store.add(tenant, segments)
        head = self._store.head(tenant)
        now = self._clock.now()
        late = [
            step
            for segment in segments
            if is_late(segment.window_ms, head, now)
            for step in segment.steps
        ]
        if late or head is None or self._is_due(tenant, head, to_ms(now)):
            self.fold(tenant, late, begins_ms=min(each.seen_ms for each in seen))

    def _is_due(self, tenant: str, head: Head, now_ms: int) -> bool:
        """Whether what follows the snapshot of *head* is worth another one."""
        most = max(FOLD_BYTES, head.parts * _PART_BYTES)
        aged = now_ms - head.folded_ms >= FOLD_EVERY // timedelta(milliseconds=1)
        return aged or self._written[tenant] >= most

    def fold(
        self,
        tenant: str,
        more: Sequence[Step],
        *,
        begins_ms: int,
        complete: bool = False,
    ) -> None:
        """Make a snapshot of *tenant*'s open runs. *more*: steps that readers may have passed.
        *begins_ms*: since when the overview has all steps, if it has no head. *complete*: it has
        the steps of all records now.

        The records decide whether the runs of *more* are still open: they may have ended in a
        window that nothing reads any more for open runs.

        Raises:
            UnavailableError: The store did not answer, or others kept winning.
        """
        for _ in range(_TRIES):
            head = self._store.head(tenant)
            now = self._clock.now()  # before the reads, see `is_late`
            there = read_open(self._store, tenant, head)
            if there is None:
                continue
            current = self._current(tenant, more)
            checked = {step.run for step in more}
            steps = still_open(
                [*(step for step in there.steps if step.run not in checked), *current]
            )
            oldest = to_ms(now - _FORGOTTEN)
            steps = [step for step in steps if step.at_ms >= oldest]
            begins = begins_ms if head is None else head.begins_ms
            to = Head(
                secrets.token_hex(8),
                0,
                since_ms(now),
                0 if complete else begins,
                there.seen_ms,
                to_ms(now),
            )
            if self._store.replace_head(tenant, head, to, steps):
                self._written[tenant] = 0
                return
        raise UnavailableError("fold the overview: other writers were faster. Try again.")

    def _current(self, tenant: str, steps: Sequence[Step]) -> list[Step]:
        """The current steps of the runs of *steps*, from their records."""
        keys = [*{step.key(tenant): None for step in steps}]
        found: list[Step] = []
        for start in range(0, len(keys), MAX_STEPS):
            page = self._runs.find(keys[start : start + MAX_STEPS])
            found += [step_of(run) for run in page.items]
        return found
