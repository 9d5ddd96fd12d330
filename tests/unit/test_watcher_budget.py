"""How many due entries a watcher holds, by the memory of its function."""

from __future__ import annotations

import pytest

from functions.watcher.handler import budget_of
from nextfire.usecases.dispatch.tick import BUDGET


@pytest.mark.parametrize(
    ("memory", "entries"),
    [
        (128, 14_336),  # half of what the code leaves
        (144, 18_432),  # the default: what it dispatches in a minute, with a twelfth of a core
        (1_769, 226_432),  # with a whole core
        (10_240, 226_432),
        (100, 5_000),
        (None, BUDGET),
    ],
)
def test_a_watcher_holds_what_fits_and_what_it_dispatches_in_a_minute(
    memory: int | None, entries: int
) -> None:
    assert budget_of(memory) == entries
