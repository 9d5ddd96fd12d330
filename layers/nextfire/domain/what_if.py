"""What the jobs of a sequence would do if some of them failed: from their definitions alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nextfire.dataclass import dataclass
from nextfire.domain.deadlines import limits
from nextfire.domain.definition import JobDefinition
from nextfire.domain.edges import Edge, Which
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start, missing


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Whether a run starts (RUN or SKIP), how it would end, and why."""

    action: RuleAction
    ends: ParentState
    reason: str


def what_if(jobs: Mapping[str, JobDefinition], fail: Collection[str]) -> dict[str, Foreseen]:
    """Decide what each of *jobs* would do at a logical time at which the jobs *fail* fail, as the
    hand-over would decide. An `all` edge: each of its runs fails. A `latest` edge to a job that
    fails: it had no earlier success that is recent enough.

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
        states = {edge.job: _state(edge, found, fail) for edge in definition.after}
        decision = decide_start(definition.trigger_rule, states, definition.setups)
        action, reason = decision.action, decision.reason
        if action is RuleAction.WAIT:  # for a success, until its join ends
            action = RuleAction.SKIP
            reason = f"{limits(definition)}; missing: {missing(states)}"
        if action is RuleAction.SKIP:
            ends = ParentState.SKIPPED
        found[name] = Foreseen(action, ends, reason)
    return found


def _state(edge: Edge, found: Mapping[str, Foreseen], fail: Collection[str]) -> ParentState:
    if edge.job in found:
        ends = found[edge.job].ends
    else:
        ends = ParentState.FAILED if edge.job in fail else ParentState.SUCCEEDED
    waits = edge.which is Which.LATEST and ends is not ParentState.SUCCEEDED
    return ParentState.WAITING if waits else ends
