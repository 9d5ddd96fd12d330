"""Reads the overview: finds runs by their latest step, and reads their records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter

from nextfire.dataclass import dataclass, field
from nextfire.domain.errors import UnavailableError, invalid_cursor
from nextfire.domain.ids import JOB_ID, RUN_ID, RunKey
from nextfire.domain.instants import MINUTE, MOMENT, floor_minute, from_ms, to_ms
from nextfire.domain.overview import (
    ENDED,
    OPEN,
    Counts,
    Head,
    Segment,
    Step,
    step_of,
    still_open,
    window_ms,
)
from nextfire.domain.ports.overview import Freshness, OverviewPage, SegmentStore, StepFilter
from nextfire.domain.ports.pages import Unreadable
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run, RunState
from nextfire.usecases.list_runs import PAGE_CHARACTERS, READS_AT_MOST, characters
from nextfire.usecases.project_runs import END_MS, OpenRuns, read_open

READ_AT_MOST = 100_000
"""Steps of ended runs after which a call reads no further window: some 2 MB."""
_MOST_RECORDS = 100
"""Maximum number of records that are read at a time, if the read before found none."""
_TRIES = 5
_MINUTE_MS = MINUTE // MOMENT
_CURSOR = re.compile(rf"([0-9]{{1,13}})\.({JOB_ID.pattern})\.({RUN_ID.pattern})")
_NOTHING = OpenRuns([], 0, 0, 0)
Position = tuple[int, str, str]
"""The place of a step in a listing: its instant, job and run."""


@dataclass(slots=True)
class _Reading:
    """What one call has read. `begins_ms`: as in the head. `left`: how many steps it may still
    read; below zero, it has stopped. `last`: the place that it has reached.
    """

    left: int = field(default_factory=lambda: READ_AT_MOST)
    seen_ms: int = 0
    lag_ms: int = 0
    begins_ms: int = 0
    last: Position | None = None

    def note(self, segment: Segment) -> None:
        self.left -= len(segment.steps)
        if segment.seen_ms > self.seen_ms:
            self.seen_ms, self.lag_ms = segment.seen_ms, segment.written_ms - segment.seen_ms

    def freshness(self) -> Freshness:
        return Freshness(
            from_ms(self.seen_ms) if self.seen_ms else None,
            max(self.lag_ms, 0) * MOMENT,
            from_ms(self.begins_ms) if self.begins_ms else None,
        )


def _reading(open_runs: OpenRuns) -> _Reading:
    return _Reading(
        seen_ms=open_runs.seen_ms, lag_ms=open_runs.lag_ms, begins_ms=open_runs.begins_ms
    )


class SegmentedOverview:
    """`RunOverview` on segments. *runs*: the records, which decide what is returned."""

    def __init__(self, store: SegmentStore, runs: RunStore) -> None:
        self._store = store
        self._runs = runs

    def covers(self, tenant: str) -> bool:
        return isinstance(self._store.head(tenant), Head)

    def list(
        self, tenant: str, wanted: StepFilter, *, cursor: str | None, limit: int
    ) -> OverviewPage:
        before: Position = (to_ms(wanted.before), "", "")
        if cursor is not None:
            before = min(before, _read(cursor))
        head, open_runs = self._open_runs(tenant)
        reading = _reading(open_runs)
        steps = self._steps(tenant, wanted, before, open_runs, reading)
        # By key: a run whose end is delivered while the snapshot still has it is listed once.
        found: dict[RunKey, Run | Unreadable] = {}
        more, left, size = True, PAGE_CHARACTERS, limit
        for _ in range(READS_AT_MOST):
            if not more or left <= 0 or len(found) >= limit:
                break
            some = [*islice(steps, size)]
            more, known = len(some) == size, len(found)
            for step, record in self._records(tenant, some, wanted, head):
                found[step.key(tenant)] = record
                left -= characters(record) if isinstance(record, Run) else 0
                if left <= 0 or len(found) >= limit:
                    reading.last, more = step[:3], True
                    break
            # Thousands of steps may have records that are gone, or that have changed since.
            size = limit - len(found) if len(found) > known else min(2 * size, _MOST_RECORDS)
        end = reading.last if more or reading.left < 0 else None
        place = None if end is None else "{}.{}.{}".format(*end)
        runs = [each for each in found.values() if isinstance(each, Run)]
        unreadable = [each for each in found.values() if isinstance(each, Unreadable)]
        return OverviewPage(runs, place, unreadable, reading.freshness())

    def counts(self, tenant: str, first: datetime) -> tuple[Counts, Freshness]:
        _, current = self._open_runs(tenant)
        total = _reading(current)
        first = floor_minute(first)
        minutes: dict[datetime, Counter[RunState]] = {}
        for state in ENDED:
            reading = _Reading()
            ends = self._ended(tenant, state, to_ms(first), (END_MS, "", ""), reading)
            for number, steps in groupby(ends, lambda step: step.at_ms // _MINUTE_MS):
                minute = from_ms(number * _MINUTE_MS)
                minutes.setdefault(minute, Counter())[state] = sum(1 for _ in steps)
            if reading.left < 0:
                # The minute in which it stopped may be incomplete.
                counted = [minute for minute, states in minutes.items() if states[state]]
                first = max([first, *(each + MINUTE for each in sorted(counted)[:1])])
        ended = {each: minutes[each] for each in sorted(minutes) if each >= first}
        states = Counter(step.state for step in still_open(current.steps))
        open_runs = {state: states[state] for state in OPEN}
        return Counts(open_runs, ended, first), total.freshness()

    def _open_runs(self, tenant: str) -> tuple[Head | None, OpenRuns]:
        for _ in range(_TRIES):
            head = self._store.head(tenant)
            if not isinstance(head, Head):
                return None, _NOTHING
            found = read_open(self._store, tenant, head)
            if found is not None:
                return head, found
        raise UnavailableError("read the overview: it was replaced meanwhile. Try again.")

    def _steps(
        self,
        tenant: str,
        wanted: StepFilter,
        before: Position,
        open_runs: OpenRuns,
        reading: _Reading,
    ) -> Iterator[Step]:
        """The steps that match *wanted*, from *before*, latest first."""
        first_ms = to_ms(wanted.first)
        sources: list[Iterable[Step]] = [
            self._ended(tenant, state, first_ms, before, reading)
            for state in ENDED
            if state in wanted.states
        ]
        if {*wanted.states} - {*ENDED}:
            sources.append(
                step
                for step in still_open(open_runs.steps)
                if step.state in wanted.states and first_ms <= step.at_ms and step[:3] < before
            )
        for step in merge(*sources, reverse=True):
            if reading.left < 0 and reading.last is not None:
                return
            reading.last = step[:3]
            if wanted.pool in {None, step.pool}:
                yield step

    def _ended(
        self, tenant: str, state: RunState, first_ms: int, before: Position, reading: _Reading
    ) -> Iterator[Step]:
        """The steps of runs that ended in *state* at or after *first_ms*, from *before*, latest
        first; those delivered twice once. Stops if *reading* has read enough.
        """
        segments = self._store.read(
            tenant, state.value, window_ms(first_ms), window_ms(before[0]), newest_first=True
        )
        for _, window in groupby(segments, attrgetter("window_ms")):
            if reading.left < 0:
                return
            steps: dict[Position, Step] = {}
            for segment in window:
                reading.note(segment)
                steps |= {
                    step[:3]: step
                    for step in segment.steps
                    if first_ms <= step.at_ms and step[:3] < before
                }
            yield from sorted(steps.values(), reverse=True)

    def _records(
        self, tenant: str, steps: Sequence[Step], wanted: StepFilter, head: Head | None
    ) -> Iterator[tuple[Step, Run | Unreadable]]:
        """The records of *steps* that are still as the steps say. An open run whose next step was
        not delivered yet is returned if its record matches *wanted*.
        """
        since = head.since_ms if head else 0
        page = self._runs.find([*{step.key(tenant): None for step in steps}])
        found = {run.key.execution_id: run for run in page.items}
        unreadable = {each.identity: each for each in page.unreadable}
        for step in steps:
            execution_id = step.key(tenant).execution_id
            if execution_id in unreadable:
                yield step, unreadable[execution_id]
            run = found.get(execution_id)
            if run is None:
                continue
            current = step_of(run)
            # If it ended before, its end would have been delivered, and is listed itself.
            lags = not step.state.ended and (not run.state.ended or current.at_ms >= since)
            if current[:4] == step[:4] or (lags and run.state in wanted.states):
                yield step, run


def _read(cursor: str) -> Position:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise invalid_cursor(cursor)
    return int(found[1]), found[2], cursor.rpartition(".")[2]
