"""Tests that the simulation finds defects of sequences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nextfire.domain import awaited, trigger_rules
from nextfire.domain.deadlines import begun_after
from nextfire.domain.edges import TriggerRule
from nextfire.domain.ids import RunKey
from nextfire.domain.message import RunMessage
from nextfire.domain.run import Run
from nextfire.domain.trigger_rules import ParentStates, RuleAction
from nextfire.usecases import hand_over, read_parents, run_attempt, without_attempt
from nextfire.usecases.hand_over import HandOver
from nextfire.usecases.limit_parallel import LimitParallel
from nextfire.usecases.past_deadline import past_deadline
from nextfire.usecases.read_upstream import with_upstream
from nextfire.usecases.record_outcome import RecordOutcome
from nextfire.usecases.start_child import JoinEnd, StartChild
from nextfire.usecases.timed_runs import TimedRuns
from tests.fakes import MemoryJoinStore
from tests.simulation.history import SEQUENCED, START, History
from tests.simulation.sequences import SEQUENCES

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
Plant = Callable[[pytest.MonkeyPatch], None]


def forget_children(patch: pytest.MonkeyPatch) -> None:
    """A redelivered message of a run that has ended is not handed over."""

    def settle(outcomes: RecordOutcome, job: Any, run: Run, *, again: bool) -> None:
        if (run.key, run.dispatch) not in settled:
            settled.add((run.key, run.dispatch))
            whole(outcomes, job, run, again=again)

    settled: set[Any] = set()
    whole = RecordOutcome.settle
    patch.setattr(RecordOutcome, "settle", settle)


def end_no_join(patch: pytest.MonkeyPatch) -> None:
    """No dispatch ends a join."""
    whole = StartChild.dispatch_later

    def later(over: StartChild, child: Any, key: Any, at: Any, dispatch: int) -> None:
        if dispatch == 1:
            whole(over, child, key, at, dispatch)

    patch.setattr(StartChild, "dispatch_later", later)


def start_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """The end of a join is taken for the dispatch of its run."""

    def end(over: HandOver, job: Any, message: RunMessage) -> JoinEnd:
        run = over.runs.get(message.key)
        if run is None:
            over._starting.start(job, message.key, None, over.clock.now(), "")  # noqa: SLF001
        return JoinEnd("", run)

    patch.setattr(HandOver, "end_join", end)


def wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """ALL_DONE does not wait."""
    whole = trigger_rules.decide_rule

    def decide(rule: TriggerRule, seen: ParentStates) -> RuleAction:
        if rule is TriggerRule.ALL_DONE:
            return RuleAction.RUN
        return whole(rule, seen)

    patch.setattr(trigger_rules, "decide_rule", decide)


def take_skips_for_successes(patch: pytest.MonkeyPatch) -> None:
    """ALL_SUCCEEDED accepts SKIPPED parents."""
    whole = trigger_rules.decide_rule

    def decide(rule: TriggerRule, seen: ParentStates) -> RuleAction:
        if rule is TriggerRule.ALL_SUCCEEDED:
            rule = TriggerRule.NONE_FAILED
        return whole(rule, seen)

    patch.setattr(trigger_rules, "decide_rule", decide)


def name_the_wrong_parent(patch: pytest.MonkeyPatch) -> None:
    """The reason names the first parent, whichever failed."""
    whole = trigger_rules.decide_start

    def decide(rule: TriggerRule, states: Any, setups: Any = ()) -> Any:
        decision = whole(rule, states, setups)
        first, found = next(iter(states)), re.search(r": (.*) (FAILED|SKIPPED)$", decision.reason)
        if found is None:
            return decision
        return replace(decision, reason=decision.reason.replace(found[1], first))

    patch.setattr(hand_over, "decide_start", decide)


def start_at_once(patch: pytest.MonkeyPatch) -> None:
    """Delays of edges are ignored."""
    whole = StartChild.start

    def start(over: StartChild, child: Any, key: Any, stored: Any, at: Any, reason: str) -> None:
        whole(over, child, key, stored, at - timedelta(days=1), reason)

    patch.setattr(StartChild, "start", start)


def keep_the_last_mark(patch: pytest.MonkeyPatch) -> None:
    """A mark replaces those of the other parents."""

    def add(store: MemoryJoinStore, run: Any, group: int, mark: str, now: Any) -> Any:  # noqa: ARG001
        store.items[run, group] = {mark}
        return [mark]

    patch.setattr(MemoryJoinStore, "add", add)


def reopen_nothing(patch: pytest.MonkeyPatch) -> None:
    """What was skipped stays skipped when its parent is redriven."""
    patch.setattr(Run, "skipped_by_parents", property(lambda _: False))


def reopen_everything(patch: pytest.MonkeyPatch) -> None:
    """A run that the end of a join skipped is reopened by a parent that ends later."""
    whole = Run.skipped

    def skipped(*args: Any, **fields: Any) -> Run:
        return whole(*args, **(fields | {"pool": None}))

    patch.setattr(Run, "skipped", staticmethod(skipped))


def pass_another_run(patch: pytest.MonkeyPatch) -> None:
    """Upstream results are those of the latest runs of the parents, at any logical time."""
    whole = with_upstream

    def read(jobs: Any, runs: Any, job: Any, run: Run, supervisor: Any) -> Run:
        names = [edge.job for edge in job.definition.after]
        keys = [key for key in runs._port.items if key.job.job_id in names]  # noqa: SLF001
        later = replace(run, key=max(keys, key=lambda key: key.run_id)) if keys else run
        return replace(run, upstream=whole(jobs, runs, job, later, supervisor).upstream)

    patch.setattr(run_attempt, "with_upstream", read)


def come_too_early(patch: pytest.MonkeyPatch) -> None:
    """A run with a schedule and parents does not wait for its time."""
    whole = awaited.time_of
    path = "nextfire.usecases.timed_runs.time_of"
    patch.setattr(path, lambda marks: whole(marks) or START)


def forget_the_last_run(patch: pytest.MonkeyPatch) -> None:
    """`all` does not wait for the last run of the interval."""
    whole = awaited.logical_times

    def times(*args: Any, **options: Any) -> Any:
        return whole(*args, **options)[:-1]

    patch.setattr(awaited, "logical_times", times)


def take_any_success(patch: pytest.MonkeyPatch) -> None:
    """`latest` accepts a success of any age."""
    whole = awaited.latest_success
    patch.setattr(read_parents, "latest_success", lambda runs, _: whole(runs, LONG_AGO))


def forget_the_time(patch: pytest.MonkeyPatch) -> None:
    """The message of a time that has to wait is acknowledged, and nothing is noted."""
    patch.setattr(TimedRuns, "begin", lambda *_: JoinEnd("forgotten"))


def ignore_setups(patch: pytest.MonkeyPatch) -> None:
    """A setup is a parent like any other."""
    whole = trigger_rules.decide_start
    patch.setattr(hand_over, "decide_start", lambda rule, states, _: whole(rule, states))


def forget_deadlines(patch: pytest.MonkeyPatch) -> None:
    """What is late starts."""
    patch.setattr(without_attempt, "past_deadline", lambda *_: None)


def excuse_what_is_late(patch: pytest.MonkeyPatch) -> None:
    """A run above that started late for any reason excuses those below."""
    patch.setattr("nextfire.usecases.past_deadline.late_on_purpose", begun_after)


def forget_what_does_not_decode(patch: pytest.MonkeyPatch) -> None:
    """The hand-over to a child that does not decode is not repeated."""
    patch.setattr(HandOver, "_repeat_later", lambda *_: None)


def skip_too_early(patch: pytest.MonkeyPatch) -> None:
    """A run is skipped well before its deadline."""
    whole = past_deadline

    def early(jobs: Any, runs: Any, job: Any, key: Any, now: Any) -> Any:
        return whole(jobs, runs, job, key, now + timedelta(seconds=20))

    patch.setattr(without_attempt, "past_deadline", early)


def end_sequences_at_once(patch: pytest.MonkeyPatch) -> None:
    """A sequence has ended when its first run has."""

    def is_under_way(over: LimitParallel, job: Any, first: str, now: Any) -> bool:  # noqa: ARG001
        root = over.runs.get(RunKey(job.key, first))
        return root is None or not root.state.ended

    patch.setattr(LimitParallel, "_is_under_way", is_under_way)


def let_all_begin(patch: pytest.MonkeyPatch) -> None:
    """Nothing limits how many sequences are under way."""
    patch.setattr(LimitParallel, "hold", lambda *_, **__: None)


PLANTS: dict[str, tuple[Plant, str]] = {
    "a hand-over that is not repeated": (forget_children, "no record|no mark"),
    "joins without an end": (end_no_join, "has no record"),
    "a join whose end starts its run": (start_at_the_end, "started, although"),
    "a rule that does not wait": (wait_for_nobody, "started, although"),
    "skips that count as successes": (take_skips_for_successes, "started, although"),
    "reasons that name the wrong parent": (name_the_wrong_parent, "but its parents ended"),
    "delays that are ignored": (start_at_once, "started, although"),
    "marks that are overwritten": (keep_the_last_mark, "no mark of"),
    "skipped runs that are not reopened": (reopen_nothing, "but they ended"),
    "skipped runs that are reopened too often": (reopen_everything, "and was reopened"),
    "results of another run": (pass_another_run, "was passed"),
    "a time that is not waited for": (come_too_early, "started, although"),
    "the last run of an interval": (forget_the_last_run, "started, although"),
    "a success of any age": (take_any_success, "started, although"),
    "setups that are ignored": (ignore_setups, "started, although|parents ended"),
    "deadlines that are ignored": (forget_deadlines, "started after its deadline"),
    "deadlines that any late parent excuses": (
        excuse_what_is_late,
        "started after its deadline",
    ),
    "children that do not decode": (forget_what_does_not_decode, "no record|no mark"),
    "deadlines that come too early": (skip_too_early, "but it was in time"),
    "sequences that end with their first run": (end_sequences_at_once, "were under way"),
    "sequences without a limit": (let_all_begin, "were under way"),
    "a time that is not noted": (forget_the_time, "audit repaired|no record"),
}
_FIRST_SEED: dict[Plant, int] = {
    forget_children: 87,
    start_at_once: 47,
    pass_another_run: 67,
    reopen_nothing: 767,
    reopen_everything: 1907,
    forget_deadlines: 1727,
    forget_the_last_run: 407,
    skip_too_early: 1467,
    end_sequences_at_once: 627,
    let_all_begin: 1247,
    forget_the_time: 87,
    come_too_early: 4967,
    excuse_what_is_late: 467,
    forget_what_does_not_decode: 987,
    take_any_success: 3207,
    ignore_setups: 2167,
}
"""A seed that reveals the defect soon, for defects that few histories reveal."""
_MOST_SEEDS = 40


@pytest.mark.parametrize(("plant", "expected"), PLANTS.values(), ids=[*PLANTS])
def test_a_planted_defect_of_sequences_is_found(
    plant: Plant, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _FIRST_SEED.get(plant, SEQUENCED)
    plant(monkeypatch)
    for seed in range(first, first + SEQUENCES * _MOST_SEEDS, SEQUENCES):
        if any(re.search(expected, each) for each in History(seed).play().violations):
            return
    pytest.fail("not found")


@pytest.mark.parametrize("seed", [1387, 1987, 2207, 3247, 3627, 4687, 15827, 41707])
def test_seeds_that_found_defects_of_sequences(seed: int) -> None:
    assert History(seed).play().violations == []
