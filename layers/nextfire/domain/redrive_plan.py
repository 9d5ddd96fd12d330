"""The plan of a redrive of a sequence: which of its runs start again, which stay, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from nextfire.dataclass import dataclass, replace
from nextfire.domain.errors import ConflictError, InvalidInputError
from nextfire.domain.run import Run, RunState
from nextfire.domain.run_graph import HAS_NO_RUN, RunNode
from nextfire.domain.trigger_rules import ParentState, RuleAction, decide_start

_NAMED = 3  # parents that a reason names


class RedriveAction(StrEnum):
    """What a redrive does with a run."""

    RUN = "RUN"  # starts again now
    FOLLOW = "FOLLOW"  # starts again when its parents have ended again and its rule allows it
    KEEP = "KEEP"  # stays as it is


class Definition(StrEnum):
    """The definition with which runs must start again."""

    CURRENT = "current"  # that of the job now
    RUN = "run"  # that of the latest attempt of the run, if the job still has it


@dataclass(frozen=True, slots=True)
class RedriveStep:
    """What happens to the run of *node*, and why."""

    node: RunNode
    action: RedriveAction
    reason: str

    @property
    def must_await(self) -> bool:
        """Whether the run must be made to await its parents: a hand-over starts runs that were
        SKIPPED because of them, and no others.
        """
        run = self.node.run
        return (
            self.action is RedriveAction.FOLLOW and run is not None and not (run.skipped_by_parents)
        )

    @property
    def ends_later(self) -> bool:
        """Whether the run ends after the redrive, so that its children are handed over then."""
        run = self.node.run
        if run is None:
            return not self.node.created_late
        return self.action is not RedriveAction.KEEP or not run.state.ended


def check_definitions(steps: Sequence[RedriveStep]) -> None:
    """Check that all runs of *steps* that start again do what they did: target, payload, retry
    policy and timeout of their jobs are unchanged. Runs without an attempt have done nothing.

    Raises:
        ConflictError: A job has changed since then. Former definitions are not stored.
    """
    again = [step for step in steps if step.action is not RedriveAction.KEEP]
    changed = [step.node.key.job.job_id for step in again if step.node.redefined]
    if changed:
        more = f" and {len(changed) - _NAMED} more" if changed[_NAMED:] else ""
        names = ", ".join(changed[:_NAMED]) + more
        raise ConflictError(
            f"Target, payload, retryPolicy or timeoutSec of {names} changed since the run started",
            "Use definition `current`; or change the job back, then redrive.",
        )


def plan_redrive(nodes: Sequence[RunNode], link: str, *, downstream: bool) -> list[RedriveStep]:
    """Plan the redrive of a sequence from its job *link* on.

    Args:
        nodes: The runs of the sequence, each after its parents.
        link: Starts again, whatever its parents did, if its run is DEAD, CANCELLED or SKIPPED.
        downstream: Below it, also start runs again that are DEAD, or that an executor SKIPPED: at
            the timeout of a join, or because of a policy. Runs that are SKIPPED because of their
            parents follow in any case.

    Returns:
        A step for each of *nodes*, in the same order. Runs that succeeded, or have not ended, stay.

    Raises:
        InvalidInputError: *link* is not among the jobs of *nodes*.
    """
    names = [node.key.job.job_id for node in nodes]
    if link not in names:
        shown = ", ".join(names[:10]) + (", …" if names[10:] else "")
        raise InvalidInputError("from", link, "not a job of this sequence", f"Available: {shown}.")
    steps: dict[str, RedriveStep] = {}
    below = {link}
    for name, node in zip(names, nodes, strict=True):
        parents = [steps[each] for each in node.parents if each in steps]
        if name == link:
            action, reason = _first(node)
        elif not below & {*node.parents}:
            action, reason = RedriveAction.KEEP, f"not below {link}"
        else:
            below.add(name)
            later = {each.node.key.job.job_id for each in parents if each.ends_later}
            if later & below:  # one of them is handed over to it, if its job was created late
                node = replace(node, created_late=False)  # noqa: PLW2901 — as it will be
            action, reason = _follower(node, parents, later & below, downstream=downstream)
        if node.redefined and action is not RedriveAction.KEEP:
            reason = f"{reason}; its job has changed since"
        steps[name] = RedriveStep(node, action, reason)
    return [*steps.values()]


def _first(node: RunNode) -> tuple[RedriveAction, str]:
    run, kept = node.run, _kept(node)
    if kept or run is None:
        return RedriveAction.KEEP, kept
    return RedriveAction.RUN, f"{run.state}: {run.reason}" if run.reason else run.state.value


def _kept(node: RunNode) -> str:
    """Why the run of *node* cannot start again; empty if it can."""
    run = node.run
    if run is None:
        waits = "has no run yet: starts when its parents have ended"
        return HAS_NO_RUN if node.created_late else waits
    if not run.state.ended:
        return f"has not ended: {run.state}"
    if run.state is RunState.SUCCEEDED:
        return "has succeeded"
    if run.covered > 1:
        return f"stands for {run.covered} missed occurrences: use a backfill"
    if run.skip_requested:
        return "was skipped on request: use a backfill"
    return ""


def _follower(
    node: RunNode, parents: Sequence[RedriveStep], later: set[str], *, downstream: bool
) -> tuple[RedriveAction, str]:
    """Decide about a run below the link. *later*: its parents that end after the redrive."""
    run, keep = node.run, RedriveAction.KEEP
    kept = _kept(node)
    if kept or run is None:
        return keep, kept
    if run.state is RunState.CANCELLED:
        return keep, "was cancelled: redrive from it to start it again"
    if not downstream and not run.skipped_by_parents:
        return keep, f"{run.state}: starts again only with downstream"
    if not later:
        if run.state is RunState.DEAD:
            return RedriveAction.RUN, f"DEAD: {run.reason}" if run.reason else "DEAD"
        return keep, "none of its parents starts again"
    states = {each.node.key.job.job_id: _state(each.node.run) for each in parents}
    return _after(node, states | dict.fromkeys(later, ParentState.WAITING), later)


def _after(
    node: RunNode, states: Mapping[str, ParentState], later: set[str]
) -> tuple[RedriveAction, str]:
    """Decide about a run, given the *states* of its parents, of which *later* are still to end."""
    decision = decide_start(node.rule, states, node.setups)
    if decision.action is RuleAction.SKIP:
        return RedriveAction.KEEP, decision.reason
    names = [each for each in node.parents if each in later]
    more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
    after = f"{', '.join(names[:_NAMED])}{more}"
    return RedriveAction.FOLLOW, f"after {after}, if {node.rule} allows it"


def _state(run: Run | None) -> ParentState:
    return ParentState.WAITING if run is None else ParentState.of(run.state)
