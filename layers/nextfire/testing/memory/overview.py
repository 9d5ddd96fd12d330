"""The overview in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from nextfire.domain.instants import cut, floor_minute, from_ms, to_ms
from nextfire.domain.overview import (
    MAX_STEPS,
    OPEN,
    BrokenHead,
    Counts,
    Head,
    Segment,
    Step,
    step_at,
    step_of,
)
from nextfire.domain.ports.overview import Freshness, OverviewPage, ScannedRuns, StepFilter
from nextfire.domain.run import Run, RunState
from nextfire.testing.memory.pages import page_of
from nextfire.testing.memory.runs import MemoryRunStore


class MemorySegmentStore:
    """`SegmentStore`."""

    def __init__(self) -> None:
        self.segments: dict[tuple[str, str, int, str], Segment] = {}
        self.heads: dict[str, Head | BrokenHead] = {}
        self.snapshots: dict[tuple[str, str], Sequence[Step]] = {}

    def add(self, tenant: str, segments: Sequence[Segment]) -> int:
        for each in segments:
            self.segments[tenant, each.log, each.window_ms, each.id] = each
        return 20 * sum(len(each.steps) for each in segments)

    def read(
        self, tenant: str, log: str, first_ms: int, last_ms: int, *, newest_first: bool = False
    ) -> Iterator[Segment]:
        found = sorted(
            (key for key in self.segments if key[:2] == (tenant, log)), reverse=newest_first
        )
        for key in found:
            if first_ms <= key[2] <= last_ms:
                yield self.segments[key]

    def head(self, tenant: str) -> Head | BrokenHead | None:
        return self.heads.get(tenant)

    def snapshot(self, tenant: str, head: Head) -> Sequence[Step] | None:
        return self.snapshots.get((tenant, head.snapshot)) if head.parts else []

    def replace_head(
        self, tenant: str, was: Head | BrokenHead | None, to: Head, steps: Sequence[Step]
    ) -> bool:
        if self.heads.get(tenant) != was:
            return False
        self.snapshots[tenant, to.snapshot] = [*steps]
        self.heads[tenant] = replace(to, parts=-(-len(steps) // MAX_STEPS))
        if isinstance(was, Head):
            self.snapshots.pop((tenant, was.snapshot), None)
        return True

    def steps(self, tenant: str) -> set[Step]:
        """All steps of *tenant* in the segments."""
        found = (each.steps for key, each in self.segments.items() if key[0] == tenant)
        return {*chain.from_iterable(found)}


class MemoryRunScan:
    """`RunScan` of *runs*, in pages of *size*."""

    def __init__(self, runs: MemoryRunStore, size: int = 4) -> None:
        self._runs, self._size = runs, size

    def pages(self, after: str | None) -> Iterator[ScannedRuns]:
        runs, start = [*self._runs.items.values()], int(after or 0)
        while True:
            steps: dict[str, list[Step]] = {}
            for run in runs[start : start + self._size]:
                steps.setdefault(run.key.job.tenant, []).append(step_of(run))
            start += self._size
            yield ScannedRuns(steps, 0, str(start) if start < len(runs) else None)
            if start >= len(runs):
                return


class MemoryRunOverview:
    """`RunOverview` of *runs*, always up to date."""

    def __init__(self, runs: MemoryRunStore) -> None:
        self._runs = runs

    def covers(self, tenant: str) -> bool:  # noqa: ARG002 — of every tenant
        return True

    def list(
        self, tenant: str, wanted: StepFilter, *, cursor: str | None, limit: int
    ) -> OverviewPage:
        found = {
            _place(run): run
            for run in self._runs.all.values()
            if run.key.job.tenant == tenant
            and run.state in wanted.states
            and cut(wanted.first) <= step_at(run) < cut(wanted.before)
            and wanted.pool in {None, run.pool}
        }
        places, more = page_of(found, cursor, limit, newest_first=True)
        page = self._runs.find([found[each].key for each in places])
        runs = sorted(page.items, key=_place, reverse=True)
        return OverviewPage(runs, more, page.unreadable, Freshness())

    def counts(self, tenant: str, first: datetime) -> tuple[Counts, Freshness]:
        first = floor_minute(first)
        steps = [step_of(run) for key, run in self._runs.all.items() if key.job.tenant == tenant]
        states = Counter(step.state for step in steps)
        minutes: dict[datetime, Counter[RunState]] = {}
        for step in sorted(steps):
            minute = floor_minute(from_ms(step.at_ms))
            if step.state.ended and minute >= first:
                minutes.setdefault(minute, Counter())[step.state] += 1
        return Counts({state: states[state] for state in OPEN}, minutes, first), Freshness()


def _place(run: Run) -> str:
    return f"{to_ms(step_at(run)):013d} {run.key.job.job_id} {run.key.run_id}"
