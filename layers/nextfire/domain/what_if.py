"""What the jobs of a sequence would do if some of them failed: from their definitions alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nextfire.domain.definition import JobDefinition
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Whether a run starts (RUN or SKIP), how it would end, and why."""

    action: RuleAction
    ends: ParentState
    reason: str


def what_if(jobs: Mapping[str, JobDefinition], fail: Collection[str]) -> dict[str, Foreseen]:
    """Decide what each of *jobs* would do at a logical time at which the jobs *fail* fail, as the
    hand-over would decide.

    Args:
        jobs: The definitions by id, parents before their children.
        fail: Ids of jobs, or of parents that are not among *jobs*. Jobs that do not start do not
            fail; all other jobs that start succeed, and so do all other parents.
    """
    found: dict[str, Foreseen] = {}
    for name, definition in jobs.items():
        ends = ParentState.FAILED if name in fail else ParentState.SUCCEEDED
        if not definition.after:
            found[name] = Foreseen(RuleAction.RUN, ends, f"starts by itself: {definition.type}")
            continue
        states = {edge.job: _state(edge.job, found, fail) for edge in definition.after}
        decision = decide_start(definition.trigger_rule, states)
        if decision.action is RuleAction.SKIP:
            ends = ParentState.SKIPPED
        found[name] = Foreseen(decision.action, ends, decision.reason)
    return found


def _state(parent: str, found: Mapping[str, Foreseen], fail: Collection[str]) -> ParentState:
    if parent in found:
        return found[parent].ends
    return ParentState.FAILED if parent in fail else ParentState.SUCCEEDED
