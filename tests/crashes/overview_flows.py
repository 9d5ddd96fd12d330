"""The flows of the projector: a batch with a snapshot, a late batch, and a rebuild.

The tables are those of the overview only; the records are in memory, because no call changes them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nextfire.adapters.dynamodb.overview_items import HEAD, encode_key, partition
from nextfire.adapters.dynamodb.overview_store import DynamoDbSegmentStore
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import DeliveredStep, step_of
from nextfire.domain.ports.overview import StepFilter
from nextfire.domain.ports.scripts import ScriptCall
from nextfire.domain.run import Run, RunState
from nextfire.usecases.project_runs import FOLD_EVERY, ProjectRuns
from nextfire.usecases.read_overview import SegmentedOverview
from nextfire.usecases.rebuild_overview import RebuildOverview
from tests.builders import NOON, run_key
from tests.crashes.flow import Flow
from tests.crashes.stack import Stack
from tests.fakes import Clock, MemoryRunScan, MemoryRunStore, Script

_HOUR = timedelta(hours=1)
_EVER = StepFilter(NOON - 24 * _HOUR, NOON + 24 * _HOUR)


class ProjectBatch(Flow):
    """The projector dies while it adds a batch and makes a snapshot; the stream delivers the batch
    again, to another process. Each run is listed once, and the open ones are counted.
    """

    name = "projector: a batch and a snapshot"
    delay = timedelta()
    """How long the stream holds the batch back."""

    def script(self, call: ScriptCall) -> Script:
        raise AssertionError(call)

    def prepare(self, stack: Stack) -> None:
        self.records = MemoryRunStore()
        self.clock = Clock(NOON)
        first = [self._write(number, RunState.RUNNING) for number in range(3)]
        self.deliver(stack, first)
        stack.answered = None
        self.clock.advance(FOLD_EVERY)
        self.batch = [
            self._write(0, RunState.SUCCEEDED),
            self._write(1, RunState.DEAD),
            self._write(3, RunState.RUNNING),
        ]
        for _ in range(2 if self.delay else 0):
            self.clock.advance(self.delay)
            self.deliver(stack, [self._write(9, RunState.RUNNING)])
            stack.answered = None

    def act(self, stack: Stack) -> None:
        self.deliver(stack, self.batch)

    def repeat(self, stack: Stack) -> None:
        if stack.answered is None:
            self.act(stack)

    def check(self, stack: Stack) -> None:
        while stack.answered is None:
            self.act(stack)
        overview = SegmentedOverview(self.store(stack), self.records)
        page = overview.list("acme", _EVER, cursor=None, limit=100)
        assert len(page.items) == len(self.records.all)
        assert {run.key: run for run in page.items} == self.records.all
        counts, _ = overview.counts("acme", NOON)
        running = [run for run in self.records.all.values() if run.state is RunState.RUNNING]
        assert counts.open[RunState.RUNNING] == len(running)
        assert [*counts.minutes.values()] == [{RunState.SUCCEEDED: 1, RunState.DEAD: 1}]

    @staticmethod
    def store(stack: Stack) -> DynamoDbSegmentStore:
        """The segments as a new process sees them."""
        client = stack.process("projector").process.dynamodb
        return DynamoDbSegmentStore(client, table=stack.system.overview_table)

    def deliver(self, stack: Stack, batch: list[DeliveredStep]) -> None:
        if not ProjectRuns(self.store(stack), self.records, self.clock).apply(batch):
            stack.answered = "added"

    def _write(self, number: int, state: RunState) -> DeliveredStep:
        """Store the record of a run. Returns what the stream gets."""
        now = self.clock.now()
        run = Run(run_key(job_id=f"job-{number}"), state, fence=1, started_at=now)
        if state.ended:
            run = replace(run, finished_at=now)
        self.records.items[run.key] = run
        return DeliveredStep("acme", step_of(run), f"{state}-{number}-{to_ms(now)}", to_ms(now))


class ProjectLate(ProjectBatch):
    """As above, with a batch that comes after snapshots that do not have its steps."""

    name = "projector: a late batch"
    delay = _HOUR


class Rebuild(ProjectBatch):
    """A rebuild dies; the operator repeats it. The stream has delivered nothing of its batch."""

    name = "projector: a rebuild"

    def act(self, stack: Stack) -> None:
        scan = MemoryRunScan(self.records, 2)
        rebuild = RebuildOverview(scan, self.store(stack), self.records, self.clock)
        with suppress(UnavailableError):
            done = rebuild.run(self.clock.now() + _HOUR)
            stack.answered = done.runs


class ProjectBroken(ProjectBatch):
    """The head does not decode: a batch replaces it, and a rebuild adds the runs that were open."""

    name = "projector: a head that does not decode"

    def prepare(self, stack: Stack) -> None:
        super().prepare(stack)
        self.clock.advance(_HOUR)
        key: dict[str, Any] = encode_key(partition("acme", HEAD), HEAD)
        stack.system.database.put_item(TableName=stack.system.overview_table, Item=key)

    def check(self, stack: Stack) -> None:
        while stack.answered is None:
            self.act(stack)
        scan = MemoryRunScan(self.records, 2)
        rebuild = RebuildOverview(scan, self.store(stack), self.records, self.clock)
        rebuild.run(self.clock.now() + _HOUR)
        super().check(stack)


OVERVIEW_FLOWS: list[Flow] = [ProjectBatch(), ProjectLate(), Rebuild(), ProjectBroken()]
