"""Trigger rules: the whole truth table."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from nextfire.domain.edges import TriggerRule
from nextfire.domain.trigger_rules import (
    ParentState,
    ParentStates,
    RuleAction,
    decide_rule,
    decide_start,
    decide_with_setups,
    missing,
)

S, F, K, W = ParentState
RUN, WAIT, SKIP = RuleAction


def test_every_rule_decides_on_every_combination() -> None:
    for rule, states in product(TriggerRule, product((False, True), repeat=4)):
        assert decide_rule(rule, ParentStates(*states)) in RuleAction


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_decision_is_final(rule: TriggerRule) -> None:
    """However the parents that are waiting end, RUN stays RUN and SKIP stays SKIP."""
    for states in product(ParentState, repeat=3):
        decided = decide_rule(rule, ParentStates.of(_by_name(states)))
        ended = [product([each] if each is not W else [S, F, K]) for each in states]
        for later in product(*([x for (x,) in each] for each in ended)):
            after = decide_rule(rule, ParentStates.of(_by_name(later)))
            assert after is not WAIT
            assert decided in {WAIT, after}


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_decision_with_setups_is_final(rule: TriggerRule) -> None:
    """As above, with every split into setups and others."""
    for states, count in product(product(ParentState, repeat=3), (1, 2)):
        setups = {f"p{number}" for number in range(count)}
        decided = decide_start(rule, _by_name(states), setups).action
        ended = [[each] if each is not W else [S, F, K] for each in states]
        for later in product(*ended):
            after = decide_start(rule, _by_name(later), setups).action
            assert after is not WAIT
            assert decided in {WAIT, after}
            if any(each is not S for each in later[:count]):
                assert after is SKIP
            else:
                assert after is decide_start(rule, _by_name(later[count:])).action


def test_a_setup_decides_before_the_rule_and_is_named() -> None:
    def decide(setup: ParentState, work: ParentState) -> tuple[RuleAction, str]:
        states = {"create": setup, "work": work}
        found = decide_start(TriggerRule.ALL_DONE, states, {"create"})
        return found.action, found.reason

    assert decide(F, W) == (SKIP, "setup create FAILED")
    assert decide(K, K) == (SKIP, "setup create SKIPPED")
    assert decide(W, F) == (WAIT, "create WAITING")
    assert decide(S, W) == (WAIT, "work WAITING")
    assert decide(S, F) == (RUN, "ALL_DONE: done")
    found = decide_start(TriggerRule.ALL_SUCCEEDED, {"create": S, "work": F}, {"create"})
    assert (found.action, found.reason) == (SKIP, "trigger rule ALL_SUCCEEDED: work FAILED")


@pytest.mark.parametrize(
    ("rule", "states", "expected"),
    [
        (TriggerRule.ALL_SUCCEEDED, (S, S), RUN),
        (TriggerRule.ALL_SUCCEEDED, (S, W), WAIT),
        (TriggerRule.ALL_SUCCEEDED, (W, F), SKIP),
        (TriggerRule.ALL_SUCCEEDED, (S, K), SKIP),
        (TriggerRule.ALL_DONE, (F, K), RUN),
        (TriggerRule.ALL_DONE, (F, W), WAIT),
        (TriggerRule.ANY_FAILED, (W, F), RUN),
        (TriggerRule.ANY_FAILED, (S, W), WAIT),
        (TriggerRule.ANY_FAILED, (S, K), SKIP),
        (TriggerRule.ANY_SUCCEEDED, (W, S), RUN),
        (TriggerRule.ANY_SUCCEEDED, (F, W), WAIT),
        (TriggerRule.ANY_SUCCEEDED, (F, K), SKIP),
        (TriggerRule.NONE_FAILED, (S, K), RUN),
        (TriggerRule.NONE_FAILED, (S, W), WAIT),
        (TriggerRule.NONE_FAILED, (W, F), SKIP),
    ],
)
def test_the_rules(
    rule: TriggerRule, states: tuple[ParentState, ...], expected: RuleAction
) -> None:
    assert decide_start(rule, _by_name(states)).action is expected


def test_a_reason_names_the_parents_that_caused_it() -> None:
    found = decide_start(TriggerRule.ALL_SUCCEEDED, {"a": S, "b": F, "c": W})
    assert found.reason == "trigger rule ALL_SUCCEEDED: b FAILED"
    found = decide_start(TriggerRule.ANY_SUCCEEDED, dict.fromkeys("abcde", K))
    assert found.reason == "trigger rule ANY_SUCCEEDED: a, b, c and 2 more SKIPPED"
    found = decide_start(TriggerRule.ANY_FAILED, {"a": S, "b": F})
    assert found.reason == "ANY_FAILED: b FAILED"
    assert missing({"a": S, "b": W, "c": W}) == "b, c"


@pytest.mark.parametrize("rule", [TriggerRule.ANY_FAILED, TriggerRule.ANY_SUCCEEDED])
def test_an_interval_without_runs_of_the_parents_has_a_reason(rule: TriggerRule) -> None:
    found = decide_start(rule, {})

    assert (found.action, found.reason) == (SKIP, f"trigger rule {rule}: no runs of its parents")


def _by_name(states: tuple[ParentState, ...]) -> dict[str, ParentState]:
    return {f"p{number}": state for number, state in enumerate(states)}


def test_the_guide_prints_the_whole_table() -> None:
    names = ("SUCCEEDED", "FAILED", "SKIPPED", "not ended")
    rows = []
    for flags in product((True, False), repeat=4):
        seen = ", ".join(name for name, flag in zip(names, flags, strict=True) if flag)
        decisions = [decide_rule(rule, ParentStates(*flags)).value for rule in TriggerRule]
        rows.append(f"| {' | '.join([seen or 'nothing', *decisions])} |")

    page = (Path(__file__).parents[2] / "docs" / "guide" / "sequences.md").read_text()

    assert f"| seen | {' | '.join(TriggerRule)} |\n" in page
    assert "\n".join(rows) in page


def test_the_guide_prints_the_table_of_setups() -> None:
    setups = {
        "all SUCCEEDED": [ParentStates(succeeded=True)],
        "not all ended, none FAILED or SKIPPED": [
            ParentStates(succeeded=each, waiting=True) for each in (False, True)
        ],
        "one FAILED or SKIPPED": [
            seen
            for flags in product((False, True), repeat=4)
            if (seen := ParentStates(*flags)).failed or seen.skipped
        ],
    }
    by_rule = {
        RUN: ParentStates(succeeded=True),
        WAIT: ParentStates(waiting=True),
        SKIP: ParentStates(failed=True),
    }
    rule = TriggerRule.ALL_SUCCEEDED
    rows = []
    for name, each in setups.items():
        decisions = [{decide_with_setups(rule, s, o) for s in each} for o in by_rule.values()]
        assert all(len(found) == 1 for found in decisions)
        rows.append(f"| {' | '.join([name, *(next(iter(f)).value for f in decisions)])} |")

    page = (Path(__file__).parents[2] / "docs" / "guide" / "sequences.md").read_text()

    assert "\n".join(rows) in page, rows
