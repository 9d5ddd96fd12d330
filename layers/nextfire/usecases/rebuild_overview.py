"""Rebuild the overview from the records, while the projector adds to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.ids import content_id
from nextfire.domain.instants import to_ms
from nextfire.domain.overview import MAX_STEPS, Head, Segment, Step, still_open, window_ms
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.overview import RunScan, SegmentStore
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import RunState
from nextfire.usecases.project_runs import END_MS, WHOLE, ProjectRuns

FLUSH_AT = 200_000
"""Steps that are held in memory: some 70 MB."""
FLUSH_SEGMENTS = 20_000
"""Segments that are held: to write them takes some 20 s."""
FOLDS = 500
"""Tenants whose open runs are held: to make their snapshots takes some 20 s."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a call did. `after`: the place where the next call continues; None: all records were
    read. `tenants`: those whose runs were read, in this and earlier calls, and whose snapshots are
    not complete.
    """

    runs: int
    undecodable: int
    after: str | None
    tenants: frozenset[str]

    @property
    def done(self) -> bool:
        return self.after is None and not self.tenants


class RebuildOverview:
    """Adds the steps of all records to the overview, and then notes that it has them: what comes
    later is delivered to the projector. It deletes nothing: steps that are there already are added
    again, which changes nothing, and steps without a record are in no listing.
    """

    def __init__(self, scan: RunScan, store: SegmentStore, runs: RunStore, clock: Clock) -> None:
        self._scan = scan
        self._store = store
        self._clock = clock
        self._projector = ProjectRuns(store, runs, clock)

    def run(
        self, until: datetime, *, after: str | None = None, tenants: Collection[str] = ()
    ) -> Rebuilt:
        """Add the steps of the records after *after*, until *until*; then complete the snapshots
        of all tenants. What is held at *until* is still written: some 40 s. *tenants*: those of the
        earlier call; without *after*, only their snapshots are left. A call that died is repeated.

        Raises:
            UnavailableError: The store did not answer. Call it again with the same *after* and
                *tenants*.
        """
        done = self._run(until, after, tenants)
        if done.done:
            self._store.replace_head(WHOLE, None, Head("", 0, 0, 0, 0, 0, END_MS), ())
        return done

    def _run(self, until: datetime, after: str | None, tenants: Collection[str]) -> Rebuilt:
        if after is None and tenants:
            return Rebuilt(0, 0, None, self._complete(sorted(tenants), until))
        name = content_id(after or "")[:16]
        held: dict[str, list[Step]] = defaultdict(list)
        opened: dict[str, list[Step]] = defaultdict(list)
        segments: set[tuple[str, RunState, int]] = set()
        runs = undecodable = flushes = 0
        for page in self._scan.pages(after):
            for tenant, steps in page.steps.items():
                runs += len(steps)
                ends = [step for step in steps if step.state.ended]
                held[tenant] += ends
                segments |= {(tenant, step.state, window_ms(step.at_ms)) for step in ends}
                if unended := [step for step in steps if not step.state.ended]:
                    opened[tenant] += unended
            undecodable += page.undecodable
            after = page.after
            if len(segments) >= FLUSH_SEGMENTS or sum(map(len, held.values())) >= FLUSH_AT:
                self._flush(held, f"{name}-{flushes}")
                segments.clear()
                flushes += 1
            full = len(opened) >= FOLDS or sum(map(len, opened.values())) >= FLUSH_AT
            if full or self._clock.now() >= until:
                break
        self._flush(held, f"{name}-{flushes}")
        for tenant in sorted(opened):
            self._fold(tenant, opened[tenant], complete=after is None)
        left = frozenset({*tenants, *held})
        if after is None:
            left = self._complete(sorted(left - opened.keys()), until)
        return Rebuilt(runs, undecodable, after, left)

    def _complete(self, tenants: Sequence[str], until: datetime) -> frozenset[str]:
        """Complete the snapshots of *tenants*, of at least one, until *until*. Returns the tenants
        that are left.
        """
        for number, tenant in enumerate(tenants):
            if number and self._clock.now() >= until:
                return frozenset(tenants[number:])
            self._fold(tenant, (), complete=True)
        return frozenset()

    def _flush(self, held: dict[str, list[Step]], name: str) -> None:
        now_ms = to_ms(self._clock.now())
        for tenant, steps in held.items():
            windows: dict[tuple[str, int], list[Step]] = defaultdict(list)
            for step in sorted(steps):
                windows[step.state.value, window_ms(step.at_ms)].append(step)
            self._store.add(
                tenant,
                [
                    # The stream has delivered nothing: the segment is as fresh as its newest step.
                    Segment(log, window, f"rebuilt-{name}-{number}", part[-1].at_ms, now_ms, part)
                    for (log, window), of_window in windows.items()
                    for number, part in enumerate(_parts(of_window))
                ],
            )
            steps.clear()

    def _fold(self, tenant: str, opened: Sequence[Step], *, complete: bool) -> None:
        """Add to the snapshot of *tenant* those of the runs *opened* that are still open; with
        *complete*, remove from it the runs that are not.
        """
        since = to_ms(self._clock.now())
        self._projector.fold(tenant, still_open(opened), since_ms=since, complete=complete)


def _parts(steps: Sequence[Step]) -> list[Sequence[Step]]:
    return [steps[start : start + MAX_STEPS] for start in range(0, len(steps), MAX_STEPS)]
