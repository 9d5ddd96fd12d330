"""The states of the parents of a join: from its marks, or from records where marks do not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nextfire.domain.awaited import run_at
from nextfire.domain.edges import Edge
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.joins import failed_and_skipped, states_of
from nextfire.domain.ports.runs import RunStore
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
        parent = JobKey(run.job.tenant, name)
        record = run_at([*records_near(runs, parent, at)], at)
        if record is not None and record.state.ended:
            states[name] = ParentState.of(record.state)
    return states
