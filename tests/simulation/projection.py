"""The overview of a history: its projector gets the stream of the runs in parts, late, again, and
dies; in the end the overview lists the records, and so does one that is rebuilt from them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import from_ms, to_ms
from nextfire.domain.overview import OPEN, BrokenHead, DeliveredStep, Segment, step_of
from nextfire.domain.ports.overview import StepFilter
from nextfire.domain.run import Run
from nextfire.testing.memory.runs import MemoryRunStore
from nextfire.usecases.project_runs import ProjectRuns
from nextfire.usecases.read_overview import SegmentedOverview
from nextfire.usecases.rebuild_overview import RebuildOverview
from tests.fakes import Clock, MemoryRunScan, MemorySegmentStore

_END = datetime(2200, 1, 1, tzinfo=UTC)
_EVER = StepFilter(from_ms(0), _END)
_LATE = [0, 1, 10, 45, 100, 400]  # seconds
_AGAIN, _DIES = 0.2, 0.1


class _FailingStore(MemorySegmentStore):
    """Sometimes does not answer, after or before it did what it was asked."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice
        self.fails = _DIES

    def add(self, tenant: str, segments: Sequence[Segment]) -> int:
        if self._dice.random() < self.fails:
            raise UnavailableError("not sent")
        written = super().add(tenant, segments)
        if self._dice.random() < self.fails:
            raise UnavailableError("no answer")
        return written


class Projection:
    """Records the stream of a history. It has a separate random generator."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 — not a secret
        self._numbers = count(1)
        self._shards: list[list[DeliveredStep]] = [[], []]

    def run_changed(self, key: RunKey, run: Run | None, now: datetime) -> None:
        """The stream receives the new record of *key*; deletions are filtered."""
        if run is not None:
            seen = DeliveredStep(
                key.job.tenant, step_of(run), f"e{next(self._numbers):09d}", to_ms(now)
            )
            self._shards[ord(key.run_id[-1]) % len(self._shards)].append(seen)

    def wrong(self, runs: MemoryRunStore) -> Iterator[str]:
        """How the overview differs from the records *runs*."""
        store = _FailingStore(self._dice)
        clock = Clock(from_ms(0))
        self._deliver(store, runs, clock)
        yield from _differences(store, runs, "the overview")
        self._spoil(store)
        store.fails = 0.0
        RebuildOverview(MemoryRunScan(runs), store, runs, clock).run(_END)
        yield from _differences(store, runs, "the repaired overview")
        rebuilt = MemorySegmentStore()
        RebuildOverview(MemoryRunScan(runs), rebuilt, runs, clock).run(_END)
        yield from _differences(rebuilt, runs, "the rebuilt overview")

    def _spoil(self, store: MemorySegmentStore) -> None:
        """Heads or snapshots get lost."""
        for tenant in [*store.heads]:
            if self._dice.random() < 0.5:
                store.heads[tenant] = BrokenHead("?", "head does not decode")
        if self._dice.random() < 0.5:
            store.snapshots.clear()

    def _deliver(self, store: MemorySegmentStore, runs: MemoryRunStore, clock: Clock) -> None:
        """Deliver each shard in its order, and a batch until no record of it failed."""
        projector = ProjectRuns(store, runs, clock)
        left = [[*shard] for shard in self._shards]
        while any(left):
            shard = self._dice.choice([each for each in left if each])
            batch = shard[: self._dice.choice([1, 3, 20])]
            late = timedelta(seconds=self._dice.choice(_LATE))
            clock.move_to(max(clock.now(), from_ms(batch[-1].seen_ms) + late))
            failed = projector.apply(batch)
            if self._dice.random() < _DIES:
                projector = ProjectRuns(store, runs, clock)
            if failed:
                first = min(index for index, each in enumerate(batch) if each.id in failed)
                del shard[:first]
            elif self._dice.random() >= _AGAIN:
                del shard[: len(batch)]


def _differences(store: MemorySegmentStore, runs: MemoryRunStore, what: str) -> Iterator[str]:
    overview = SegmentedOverview(store, runs)
    for tenant in sorted({key.job.tenant for key in runs.items}):
        found: list[str] = []
        cursor = None
        while True:
            page = overview.list(tenant, _EVER, cursor=cursor, limit=50)
            found += [run.key.execution_id for run in page.items]
            found += [each.identity for each in page.unreadable]
            cursor = page.cursor
            if cursor is None:
                break
        if len({*found}) != len(found):
            yield f"{what} lists a run twice"
        expected = {key.execution_id for key in runs.items if key.job.tenant == tenant}
        if missing := sorted(expected - {*found}):
            yield f"{what} does not list {missing[:3]}"
        states = Counter(run.state for key, run in runs.items.items() if key.job.tenant == tenant)
        counted, _ = overview.counts(tenant, _END)
        if wrong := {state for state in OPEN if counted.open[state] != states[state]}:
            yield f"{what} counts other runs that are {sorted(wrong)} than there are"
