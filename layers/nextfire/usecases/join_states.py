"""The states of the parents of a join: from its marks, or from records where marks do not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from nextfire.domain.awaited import run_at
from nextfire.domain.edges import Edge
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.instants import CLOCKS_DIFFER
from nextfire.domain.job import Job
from nextfire.domain.joins import ALONE, failed_and_skipped, mark, parents_of, states_of
from nextfire.domain.ports.runs import RunStore
from nextfire.domain.run import Run
from nextfire.domain.trigger_rules import ParentState
from nextfire.usecases.read_parents import records_near


def join_states(
    runs: RunStore, run: RunKey, edges: Sequence[Edge], marks: Collection[str]
) -> Mapping[str, ParentState]:
    """How the parents of the join of *run* ended last, according to its *marks*.

    Marks have no order. A parent that was SKIPPED may have failed since, and one that failed may
    have been SKIPPED in a redrive: its record says which. Raises as the store does.
    """
    states, at = dict(states_of(edges, marks)), run.scheduled_at
    for name in failed_and_skipped(marks) & states.keys():
        record = _record(runs, JobKey(run.job.tenant, name), at)
        if record is not None and record.state.ended:
            states[name] = ParentState.of(record.state)
    return states


def with_earlier_ends(
    runs: RunStore, child: Job, run: RunKey, marks: Collection[str], *, under_way: bool = False
) -> Collection[str]:
    """*marks* of the join of *run*, and one for each parent that ended before it became a parent:
    its record has ended. Reads nothing if *child* has not changed since the logical time.
    *under_way*: only if *run* was SKIPPED because of its parents. Of up to `ALONE` parents, so that
    few are read. Raises as the store does.
    """
    edges, at = child.definition.after, run.scheduled_at
    left = [edge for edge in edges if edge.job not in parents_of(marks)]
    if not left or edges[ALONE:] or child.updated_at < at - CLOCKS_DIFFER:
        return marks
    if under_way:
        stored = runs.get(run)
        if stored is None or not stored.skipped_by_parents:
            return marks
    records = [(edge, _record(runs, JobKey(run.job.tenant, edge.job), at)) for edge in left]
    return [
        *marks,
        *(
            mark(edge, ParentState.of(record.state), record.finished_at or at)
            for edge, record in records
            if record is not None and record.state.ended
        ),
    ]


def _record(runs: RunStore, parent: JobKey, at: datetime) -> Run | None:
    return run_at([*records_near(runs, parent, at)], at)
