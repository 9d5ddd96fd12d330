"""Lists of runs that are filtered by the labels of their jobs: what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from nextfire.domain.errors import UnavailableError
from nextfire.domain.ports.pages import Page, Unreadable
from nextfire.domain.run import Run, RunState
from nextfire.usecases.labelled_runs import LabelledRuns
from tests.world import World

LABELS = {"team": "etl"}


def test_a_job_that_is_not_returned_fails_the_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its runs the list would look complete."""
    run = Run(world.register("a", labels=LABELS).run_key(world.now), RunState.SUCCEEDED)

    def throttled(keys: Any) -> Any:
        return dict.fromkeys(keys, UnavailableError("throttled"))

    monkeypatch.setattr(world.jobs, "get_many", throttled)
    labelled = LabelledRuns(world.jobs, LABELS)
    with pytest.raises(UnavailableError):
        labelled.page(lambda **_: Page([run], None), cursor=None, limit=10)


def test_unreadable_records_are_of_an_unknown_job(world: World) -> None:
    run = Run(world.register("a", labels=LABELS).run_key(world.now), RunState.SUCCEEDED)
    broken = Unreadable("a", "cannot be decoded")

    def find(**_: Any) -> Page[Run]:
        return Page([run], None, [broken])

    assert LabelledRuns(world.jobs, {}).page(find, cursor=None, limit=10).unreadable == [broken]
    found = LabelledRuns(world.jobs, LABELS).page(find, cursor=None, limit=10)
    assert (found.items, found.unreadable) == ([run], [])
