"""Liveness: an overloaded dispatcher sends up to its capacity, and an outage's backlog drains."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from benchmarks.one_core import Watcher
from benchmarks.overload import MINUTE, POLICIES, SELDOM, START, measure_capacity, seldom_jobs
from nextfire.domain.due_decisions import Decision, Fire, decide_due
from nextfire.usecases.dispatch import deciding
from nextfire.usecases.dispatch.holding import HeldEntries
from tests.crons import LONG
from tests.simulation.liveness import Case, play

SCALE = 60.0 if LONG else 270.0
"""How much slower the modelled core is. A slower core sends fewer runs per history."""
OVERLOADED_FOR = 20 * MINUTE
OUTAGE = timedelta(seconds=210)
CASES = [Case(policy, load) for policy in POLICIES for load in (1.1, 2)]
CASES += [Case(policy, 0.8, OUTAGE) for policy in POLICIES]
ALWAYS = [Case("RUN_LATEST", 2), Case("RUN_LATEST", 0.8, OUTAGE), Case("SKIP", 0.8, OUTAGE)]
"""The cases without NEXTFIRE_LONG."""


@cache
def _capacity() -> float:
    return measure_capacity(SCALE)


def _play(case: Case, plant: Callable[[Watcher], None] = lambda _: None) -> list[str]:
    return play(case, _capacity(), scale=SCALE, overloaded_for=OVERLOADED_FOR, plant=plant)


@pytest.mark.parametrize("case", CASES if LONG else ALWAYS, ids=str)
def test_the_dispatcher_stays_live_under_overload_and_after_outages(case: Case) -> None:
    assert not _play(case)


def test_jobs_that_run_seldom_and_skip_do_not_end_dispatch() -> None:
    """A missed occurrence of such a job has no later one near that its record could go with. At
    twice the capacity the records of all would take longer than the runs.
    """
    watcher = seldom_jobs(_capacity(), 2, SCALE)
    watcher.watch(START + SELDOM)

    runs = sum(at >= START + SELDOM / 2 for at, _, _ in watcher.queue.sent)
    assert runs >= 0.9 * _capacity() * (SELDOM / 2 / MINUTE)
    assert len(watcher.runs.items) > 0, "records of skipped occurrences are written too"


@pytest.mark.parametrize(
    "case",
    [Case("RUN_LATEST", 2), Case("RUN_LATEST", 0.8, OUTAGE)] if LONG else [ALWAYS[1]],
    ids=str,
)
def test_a_dispatcher_that_covers_before_it_sends_is_found(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher writes the records of late occurrences, and the entries after them queue up."""

    def cover_first(*given: Any) -> Decision:
        decision = decide_due(*given)
        first = decision.cover_first if isinstance(decision, Fire) else None
        return first or decision

    monkeypatch.setattr(deciding, "decide_due", cover_first)
    # covering does not wait either
    monkeypatch.setattr(HeldEntries, "busy", property(lambda _: False))
    assert any(
        "it sent" in each or "sent late" in each or "had no run" in each for each in _play(case)
    )


def _send_nothing_late(watcher: Watcher) -> None:
    """The queue rejects runs that are over a minute late."""
    watcher.queue.takes = lambda m: watcher.queue.now() - m.key.scheduled_at <= MINUTE


def _leave_one_alone(watcher: Watcher) -> None:
    watcher.queue.takes = lambda message: message.job_id != "job7"


PLANTS = {
    "late runs are never sent": (Case("RUN_ALL", 0.5, OUTAGE), _send_nothing_late, "had no run"),
    "one job starves": (Case("RUN_ALL", 0.5), _leave_one_alone, "1 jobs had no run"),
}


@pytest.mark.parametrize(("case", "plant", "found"), PLANTS.values(), ids=[*PLANTS])
def test_a_planted_defect_of_liveness_is_found(
    case: Case, plant: Callable[[Watcher], None], found: str
) -> None:
    if LONG:
        assert not _play(case), "violations without a planted defect"
    assert any(found in each for each in _play(case, plant))
