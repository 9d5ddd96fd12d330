"""Liveness: an overloaded dispatcher sends as much as it can, and an outage's backlog ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from benchmarks.one_core import Watcher
from benchmarks.overload import MINUTE, POLICIES, measure_capacity
from nextfire.domain.due_decisions import Decision, Fire, decide_due
from nextfire.usecases.dispatch import deciding
from nextfire.usecases.dispatch.holding import HeldEntries
from tests.crons import LONG
from tests.simulation.liveness import Case, play

SCALE = 60.0
"""The core of these histories sends less than 5,000 runs a minute."""
OVERLOADED_FOR = 20 * MINUTE
OUTAGE = timedelta(seconds=210)
CASES = [Case(policy, load) for policy in POLICIES for load in (1.1, 2)]
CASES += [Case(policy, 0.8, OUTAGE) for policy in POLICIES]
ALWAYS = [Case("RUN_LATEST", 2), Case("RUN_LATEST", 0.8, OUTAGE), Case("SKIP", 0.8, OUTAGE)]
"""Played without NEXTFIRE_LONG, too."""


@cache
def _capacity() -> float:
    return measure_capacity(SCALE)


def _play(case: Case, plant: Callable[[Watcher], None] = lambda _: None) -> list[str]:
    return play(case, _capacity(), scale=SCALE, overloaded_for=OVERLOADED_FOR, plant=plant)


@pytest.mark.parametrize("case", CASES if LONG else ALWAYS, ids=str)
def test_overload_and_outages_leave_it_alive(case: Case) -> None:
    assert not _play(case)


@pytest.mark.parametrize(
    "case",
    [Case("RUN_LATEST", 2), Case("RUN_LATEST", 0.8, OUTAGE)] if LONG else [ALWAYS[1]],
    ids=str,
)
def test_a_dispatcher_that_covers_before_it_sends_is_found(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is late is put on record by the watcher, and what follows it queues behind the rest."""

    def cover_first(*given: Any) -> Decision:
        decision = decide_due(*given)
        first = decision.cover_first if isinstance(decision, Fire) else None
        return first or decision

    monkeypatch.setattr(deciding, "decide_due", cover_first)
    monkeypatch.setattr(HeldEntries, "busy", property(lambda _: False))  # nor does that wait
    assert any(
        "it sent" in each or "sent late" in each or "had no run" in each for each in _play(case)
    )


def _send_nothing_late(watcher: Watcher) -> None:
    """A queue that takes nothing that is a minute late."""
    watcher.queue.takes = lambda m: watcher.queue.now() - m.key.scheduled_at <= MINUTE


def _leave_one_alone(watcher: Watcher) -> None:
    watcher.queue.takes = lambda message: message.job_id != "job7"


PLANTS = {
    "what is late is never sent": (Case("RUN_ALL", 0.5, OUTAGE), _send_nothing_late, "had no run"),
    "one job is left alone": (Case("RUN_ALL", 0.5), _leave_one_alone, "1 jobs had no run"),
}


@pytest.mark.parametrize(("case", "plant", "found"), PLANTS.values(), ids=[*PLANTS])
def test_a_planted_defect_of_liveness_is_found(
    case: Case, plant: Callable[[Watcher], None], found: str
) -> None:
    assert not _play(case), "nothing is planted yet"
    assert any(found in each for each in _play(case, plant))
