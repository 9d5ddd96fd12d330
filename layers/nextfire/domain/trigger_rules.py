"""Trigger rules: whether a run starts, given how the runs of its parents ended.

The decision depends on which kinds of states the parents have, not on their number:
`ParentStates`. So the truth table is finite, and `docs/guide/sequences.md` prints all of it. Setups
are parents whose run must have succeeded: ALL_SUCCEEDED decides about them, the rule of the job
about the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from nextfire.dataclass import dataclass
from nextfire.domain.edges import TriggerRule
from nextfire.domain.run import RunState


class ParentState(StrEnum):
    """How a rule sees the run of a parent."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"  # DEAD or CANCELLED
    SKIPPED = "SKIPPED"
    WAITING = "WAITING"  # has not ended

    @staticmethod
    def of(state: RunState) -> ParentState:
        return {
            RunState.SUCCEEDED: ParentState.SUCCEEDED,
            RunState.SKIPPED: ParentState.SKIPPED,
            RunState.DEAD: ParentState.FAILED,
            RunState.CANCELLED: ParentState.FAILED,
        }.get(state, ParentState.WAITING)


class RuleAction(StrEnum):
    RUN = "RUN"
    WAIT = "WAIT"
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class ParentStates:
    """Which states the runs of the parents have: at least one parent each."""

    succeeded: bool = False
    failed: bool = False
    skipped: bool = False
    waiting: bool = False

    @staticmethod
    def of(states: Mapping[str, ParentState]) -> ParentStates:
        """*states*: by parent."""
        found = {*states.values()}
        return ParentStates(
            ParentState.SUCCEEDED in found,
            ParentState.FAILED in found,
            ParentState.SKIPPED in found,
            ParentState.WAITING in found,
        )


def decide_rule(rule: TriggerRule, seen: ParentStates) -> RuleAction:
    """Decide whether a run starts. RUN and SKIP are final: no state of a parent that is still
    waiting changes them.
    """
    waits = RuleAction.WAIT if seen.waiting else None
    match rule:
        case TriggerRule.ALL_SUCCEEDED:
            return RuleAction.SKIP if seen.failed or seen.skipped else waits or RuleAction.RUN
        case TriggerRule.NONE_FAILED:
            return RuleAction.SKIP if seen.failed else waits or RuleAction.RUN
        case TriggerRule.ALL_DONE:
            return waits or RuleAction.RUN
        case TriggerRule.ANY_FAILED:
            return RuleAction.RUN if seen.failed else waits or RuleAction.SKIP
        case TriggerRule.ANY_SUCCEEDED:
            return RuleAction.RUN if seen.succeeded else waits or RuleAction.SKIP


def decide_with_setups(rule: TriggerRule, setups: ParentStates, others: ParentStates) -> RuleAction:
    """Decide whether a run starts, of a job that has *setups*. Final, as `decide_rule`."""
    both = {decide_rule(TriggerRule.ALL_SUCCEEDED, setups), decide_rule(rule, others)}
    return next(each for each in (RuleAction.SKIP, RuleAction.WAIT, RuleAction.RUN) if each in both)


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """An action and its reason, which names the parents that caused it."""

    action: RuleAction
    reason: str


_NAMED = 3  # parents that a reason names


def decide_start(
    rule: TriggerRule, states: Mapping[str, ParentState], setups: Collection[str] = ()
) -> RuleDecision:
    """Decide whether a run starts. *states*: of the runs of its parents, by the parent's id.
    *setups*: those whose run must have succeeded.
    """
    others = {name: state for name, state in states.items() if name not in setups}
    if setups:
        needed = {name: state for name, state in states.items() if name in setups}
        action = decide_with_setups(rule, ParentStates.of(needed), ParentStates.of(others))
        cause = _named(needed, ParentState.FAILED) or _named(needed, ParentState.SKIPPED)
        if action is RuleAction.SKIP and cause:
            return RuleDecision(action, f"setup {cause}")
    else:
        action = decide_rule(rule, ParentStates.of(states))  # none: ALL and NONE hold, ANY does not
    return _explained(rule, action, states if action is RuleAction.WAIT else others)


def _explained(
    rule: TriggerRule, action: RuleAction, states: Mapping[str, ParentState]
) -> RuleDecision:
    if action is RuleAction.RUN:
        fails = rule is TriggerRule.ANY_FAILED
        cause = _named(states, ParentState.FAILED if fails else ParentState.SUCCEEDED)
        return RuleDecision(action, f"{rule}: {cause or 'done'}")
    if action is RuleAction.WAIT:
        return RuleDecision(action, _named(states, ParentState.WAITING))
    if not states:  # an interval without runs of the parents
        return RuleDecision(action, f"trigger rule {rule}: no runs of its parents")
    cause = _named(states, ParentState.FAILED)
    if rule is TriggerRule.ANY_FAILED or not cause:
        cause = _named(states, ParentState.SKIPPED) or "no parent failed"
    if rule is TriggerRule.ANY_SUCCEEDED:
        cause = _named(states, ParentState.FAILED) or cause
    return RuleDecision(action, f"trigger rule {rule}: {cause}")


def missing(states: Mapping[str, ParentState]) -> str:
    """The parents that have not ended: ``extract, load``."""
    return _list([name for name, state in states.items() if state is ParentState.WAITING])


def _named(states: Mapping[str, ParentState], state: ParentState) -> str:
    """``extract FAILED``; empty if no parent has *state*."""
    found = [name for name, each in states.items() if each is state]
    return f"{_list(found)} {state}" if found else ""


def _list(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
