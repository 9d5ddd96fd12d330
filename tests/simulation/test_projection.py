"""The overview in random histories: planted defects of the projector are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nextfire.domain import overview
from nextfire.usecases.project_runs import ProjectRuns
from tests.simulation.history import History

SEEDS = range(60)


def _as_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(steps: Any) -> Any:
        return {step.run: step for step in steps}

    monkeypatch.setattr(overview, "newest", newest)


def _failures_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = ProjectRuns.apply
    monkeypatch.setattr(ProjectRuns, "apply", lambda self, records: apply(self, records) and [])


@pytest.mark.parametrize("plant", [_as_delivered, _failures_are_not_reported])
def test_a_planted_defect_of_the_projector_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    for seed in SEEDS:
        wrong = History(seed).play().violations
        if wrong:
            assert "overview" in wrong[0]
            return
    pytest.fail("not found")
