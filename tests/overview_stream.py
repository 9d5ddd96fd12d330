"""The stream of run records that a projector reads, for tests of the overview."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import DeliveredStep, step_of
from nextfire.domain.ports.overview import OverviewPage, StepFilter
from nextfire.domain.run import Run, RunState
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.usecases.read_overview import SegmentedOverview
from nextfire.usecases.rebuild_overview import RebuildOverview
from tests.builders import LEASE, NOON, run_key
from tests.fakes import Clock, MemoryRunScan, MemoryRunStore, MemorySegmentStore

TENANT = "acme"
SECOND = timedelta(seconds=1)
DONE = Result(AttemptOutcome.SUCCEEDED, "exit code 0", 0)
FAILED = Result(AttemptOutcome.FAILED, "exit code 1", 1)
EVER = StepFilter(NOON - timedelta(days=400), NOON + timedelta(days=400))


def started(run: RunKey, now: datetime, *, was: Run | None = None) -> Run:
    before = was or Run(run, RunState.PENDING)
    claimed = before.taken_over(
        dispatch=before.dispatch, token="t", worker="w", now=now, lease_until=now + LEASE
    )
    return replace(claimed, state=RunState.RUNNING, pool="default")


def ended(run: Run, now: datetime, state: RunState = RunState.SUCCEEDED) -> Run:
    return run.ended(state, DONE if state is RunState.SUCCEEDED else FAILED, now)


def keys(number: int, scheduled_at: datetime = NOON) -> list[RunKey]:
    return [run_key(scheduled_at, job_id=f"job-{each:04d}") for each in range(number)]


class Stream:
    """Records as the store has them, and the stream of their changes that the projector gets."""

    def __init__(self, store: MemorySegmentStore | None = None, runs: Any = None) -> None:
        self.clock = Clock(NOON)
        self.store = store or MemorySegmentStore()
        self.runs = runs or MemoryRunStore()
        self.projector = ProjectRuns(self.store, self.runs, self.clock)
        self.overview = SegmentedOverview(self.store, self.runs)
        self.pending: list[DeliveredStep] = []
        self._ids = count(1)

    def write(self, run: Run) -> Run:
        """Store *run*; the stream receives it now."""
        self.runs.items[run.key] = run
        seen = DeliveredStep(
            run.key.job.tenant, step_of(run), f"e{next(self._ids):09d}", to_ms(self.clock.now())
        )
        self.pending.append(seen)
        return run

    def deliver(self, batch: Iterable[DeliveredStep] | None = None) -> list[str]:
        """Deliver what the stream received since the last call, or *batch*."""
        if batch is None:
            batch, self.pending = self.pending, []
        return self.projector.apply(batch)

    def pages(self, wanted: StepFilter = EVER, limit: int = 3) -> Iterator[OverviewPage]:
        cursor = None
        while True:
            page = self.overview.list(TENANT, wanted, cursor=cursor, limit=limit)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    def listed(self, *states: RunState, limit: int = 3, **wanted: Any) -> list[Run]:
        asked = replace(EVER, **wanted)
        if states:
            asked = replace(asked, states=states)
        return [run for page in self.pages(asked, limit) for run in page.items]

    def assert_complete(self) -> None:
        """The overview lists each record once, latest step first."""
        listed = self.listed(limit=7)
        assert sorted(listed, key=position, reverse=True) == listed
        assert len({run.key for run in listed}) == len(listed)
        assert {run.key: run for run in listed} == self.runs.items
        for state in RunState:
            of_state = self.listed(state, limit=7)
            assert of_state == [run for run in listed if run.state is state]


def position(run: Run) -> tuple[int, str, str]:
    step = step_of(run)
    return step.at_ms, step.job_id, step.run_id


def rebuild(stream: Stream, *, step: timedelta = timedelta(hours=1)) -> int:
    """Rebuild; each call ends *step* after it began. Returns the number of calls."""
    use = RebuildOverview(MemoryRunScan(stream.runs), stream.store, stream.runs, stream.clock)
    done, calls = use.run(stream.clock.now() + step), 1
    while not done.done:
        done = use.run(stream.clock.now() + step, after=done.after, tenants=done.tenants)
        calls += 1
    return calls
