"""Two releases of the time zone database side by side."""

from __future__ import annotations

import pytest

from nextfire.domain import due_decisions
from nextfire.domain.audit_pass import OVERLAP, Audit
from tests.crons import LONG
from tests.simulation.zones import ZoneHistory

SEEDS = (*range(300), 2278) if LONG else (*range(6), 26, 39, 286, 2278)
"""In 26 and 39 a watcher dies while it moves an entry, in 286 and 2278 before it stores the next
one; one with the earlier release takes over.
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_each_local_time_runs_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = ZoneHistory(seed, monkeypatch).play()
    assert not outcome.violations, outcome.violations[0]


def test_a_watcher_that_takes_entries_as_they_are_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due_decisions, "decide_move", lambda *_: None)
    wrong: list[str] = []
    for seed in range(8):
        with pytest.MonkeyPatch.context() as patch:
            wrong += ZoneHistory(seed, patch).play().violations
    assert any(" ran" in each for each in wrong)


def test_an_auditor_that_takes_runs_of_the_former_rules_for_lost_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Audit, "looks_back_to", lambda audit, *_: audit.started_at - OVERLAP)
    wrong: list[str] = []
    for seed in (8, 18):  # with an audit each minute
        with pytest.MonkeyPatch.context() as patch:
            wrong += ZoneHistory(seed, patch).play().violations
    assert any(" ran" in each for each in wrong)
