"""The projector: adds what the stream of the runs delivers to the overview."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import MOMENT, to_ms
from nextfire.domain.overview import (
    LOGS,
    MAX_STEPS,
    OPEN_LOG,
    WINDOW_MS,
    BrokenHead,
    DeliveredStep,
    Head,
    Step,
    first_head,
    is_late,
    newest,
    next_since_ms,
    segments_of,
    step_of,
    still_open,
)
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.overview import SegmentStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.retention import RETENTION

FOLD_EVERY = timedelta(minutes=10)
"""Maximum age of a snapshot when a batch arrives: readers of open runs read what follows the
snapshot before it.
"""
FOLD_BYTES = 256 * 1024
"""Maximum size of what is written between two snapshots; more if the snapshot is larger."""
END_MS = 10**13 - 1
"""After all windows, in the year 2286: the last instant of 13 digits."""
WHOLE = ""
"""In place of a tenant: a head with this name exists once the overview has all records. From then
on, a tenant without a head is new.
"""
_PART_BYTES = 40 * 1024
"""Usual size of a part of a snapshot."""
_TRIES = 20


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The steps of a tenant's open runs, with later steps that may have ended them. `seen_ms`,
    `lag_ms`: when the stream received the newest step, and how long it took to be written.
    `begins_ms`: as in the head; later if the snapshot is lost. `lost`: it is.
    """

    steps: list[Step]
    seen_ms: int
    lag_ms: int
    begins_ms: int
    lost: bool = False


def read_open(store: SegmentStore, tenant: str, head: Head) -> OpenRuns | None:
    """The open runs according to *head* and what was written after it; None if a later head
    replaced *head* meanwhile.
    """
    snapshot = store.snapshot(tenant, head)
    lost = snapshot is None
    if lost and store.head(tenant) != head:
        return None
    steps = [*(snapshot or ())]
    seen, lag = head.seen_ms, 0
    for log in LOGS:
        # The clocks of an executor and of the stream differ: the end of a run may be in a window
        # before the one in which the stream received its start.
        first = head.since_ms if log == OPEN_LOG else head.since_ms - WINDOW_MS
        for segment in store.read(tenant, log, max(first, 0), END_MS):
            steps += segment.steps
            if segment.seen_ms >= seen:
                seen, lag = segment.seen_ms, segment.written_ms - segment.seen_ms
    begins = max(head.begins_ms, head.since_ms) if lost else head.begins_ms
    return OpenRuns(steps, seen, lag, begins, lost)


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
        self.lost: dict[str, str] = {}
        """Tenants whose head or snapshot was lost, and why. Another one replaced it, without the
        runs that were open before; a rebuild adds them.
        """
        self.begun: set[str] = set()
        """Tenants whose overview has begun, and may lack earlier records; a rebuild adds them."""

    def apply(self, records: Iterable[DeliveredStep]) -> list[str]:
        """Add *records*, in the order of their stream.

        Returns:
            The ids of records from which on the stream has to be delivered again: the first one of
            each tenant whose steps could not be stored.
        """
        of_tenants: dict[str, list[DeliveredStep]] = {}
        for each in records:
            of_tenants.setdefault(each.tenant, []).append(each)
        failed = []
        for tenant, seen in of_tenants.items():
            try:
                self._apply(tenant, seen)
            except UnavailableError:
                failed.append(seen[0].id)
        return failed

    def _apply(self, tenant: str, seen: Sequence[DeliveredStep]) -> None:
        segments = segments_of(seen, self._clock.now())
        self._written[tenant] += self._store.add(tenant, segments)
        head = self._store.head(tenant)
        late = [
            step
            for segment in segments
            if is_late(segment.window_ms, head)
            for step in segment.steps
        ]
        if late or self._is_due(tenant, head):
            since_ms = min(each.seen_ms for each in seen)
            self.fold(tenant, late, since_ms=since_ms, if_due=not late)

    def _is_due(self, tenant: str, head: Head | BrokenHead | None) -> bool:
        """Whether what follows the snapshot of *head* is worth another one."""
        if not isinstance(head, Head):
            return True
        most = max(FOLD_BYTES, head.parts * _PART_BYTES)
        age_ms = to_ms(self._clock.now()) - head.folded_ms
        return age_ms * MOMENT >= FOLD_EVERY or self._written[tenant] >= most

    def fold(
        self,
        tenant: str,
        more: Sequence[Step],
        *,
        since_ms: int,
        complete: bool = False,
        if_due: bool = False,
    ) -> None:
        """Make a snapshot of *tenant*'s open runs. *more*: steps that readers may have passed.
        *since_ms*: since when the overview has all steps, if it has no head that decodes.
        *complete*: it has the steps of all records now. *if_due*: one that another projector makes
        meanwhile suffices.

        The records decide whether the runs of *more* are still open: they may have ended in a
        window that is not read for open runs. With *complete*, they decide about all open runs.

        Raises:
            UnavailableError: The store did not answer, or others kept winning.
        """
        for number in range(_TRIES):
            was = self._store.head(tenant)
            if number and if_due:
                self._written[tenant] = 0
                if not self._is_due(tenant, was):
                    return
            head = was if isinstance(was, Head) else self._first_head(tenant, was, since_ms)
            open_runs = read_open(self._store, tenant, head)
            if open_runs is None:
                continue
            now = self._clock.now()
            # The record of an open run without a step for that long may have expired.
            old_ms = to_ms(now - RETENTION)
            is_open = still_open(open_runs.steps)
            unsure = [*more, *(step for step in is_open if complete or step.at_ms < old_ms)]
            checked = {step.run for step in unsure}
            steps = [step for step in open_runs.steps if step.run not in checked]
            steps += self._current(tenant, unsure)
            to = Head(
                secrets.token_hex(8),
                0,
                head.next_ms,
                next_since_ms(head, open_runs.seen_ms, now),
                0 if complete else open_runs.begins_ms,
                open_runs.seen_ms,
                to_ms(now),
            )
            if self._store.replace_head(tenant, was, to, still_open(steps)):
                self._written[tenant] = 0
                self._note_loss(tenant, was, open_runs)
                return
        raise UnavailableError("fold the overview: other writers were faster. Try again.")

    def _first_head(self, tenant: str, was: BrokenHead | None, since_ms: int) -> Head:
        is_whole = was is None and isinstance(self._store.head(WHOLE), Head)
        if not is_whole:
            self.begun.add(tenant)
        return first_head(since_ms, is_whole=is_whole)

    def _note_loss(self, tenant: str, was: Head | BrokenHead | None, open_runs: OpenRuns) -> None:
        if isinstance(was, BrokenHead):
            self.lost[tenant] = was.problem
        elif open_runs.lost:
            self.lost[tenant] = "the snapshot is gone or does not decode"

    def _current(self, tenant: str, steps: Sequence[Step]) -> list[Step]:
        """The latest of *steps* and of those of their records, without runs that have none. Records
        are read eventually consistently: they may be older.
        """
        current: list[Step] = []
        latest = [*newest(steps).values()]  # there may be a million: only pages are copied
        for start in range(0, len(latest), MAX_STEPS):
            part = {step.key(tenant): step for step in latest[start : start + MAX_STEPS]}
            for run in self._runs.find([*part]).items:
                step, recorded = part[run.key], step_of(run)
                current.append(recorded if recorded.order > step.order else step)
        return current
