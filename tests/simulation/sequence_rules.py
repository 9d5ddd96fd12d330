"""What trigger rules permit, by the states in which the runs of parents had ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nextfire.domain.run import RunState

S, F, K = "SUCCEEDED", "FAILED", "SKIPPED"
ENDED = {
    RunState.SUCCEEDED: S,
    RunState.DEAD: F,
    RunState.CANCELLED: F,
    RunState.SKIPPED: K,
}

Ends = Mapping[str, Collection[str]]
"""The states in which the run of each parent has ended so far; empty: it has not."""


def may_run(rule: str, ends: Ends, setups: Collection[str]) -> bool:
    """Whether a run may have started under *rule*."""
    each = [had for name, had in ends.items() if name not in setups]
    return (
        all(S in ends[name] for name in setups)
        and {
            "ALL_SUCCEEDED": all(S in had for had in each),
            "ALL_DONE": all(had for had in each),
            "ANY_FAILED": any(F in had for had in each),
            "ANY_SUCCEEDED": any(S in had for had in each),
            "NONE_FAILED": all({S, K} & {*had} for had in each),
        }[rule]
    )


def may_skip(rule: str, ends: Ends, setups: Collection[str]) -> bool:
    """Whether a run may have been skipped under *rule*, not because of its setups."""
    each = [had for name, had in ends.items() if name not in setups]
    return {
        "ALL_SUCCEEDED": any({F, K} & {*had} for had in each),
        "ALL_DONE": False,
        "ANY_FAILED": all({S, K} & {*had} for had in each),
        "ANY_SUCCEEDED": all({F, K} & {*had} for had in each),
        "NONE_FAILED": any(F in had for had in each),
    }[rule]
