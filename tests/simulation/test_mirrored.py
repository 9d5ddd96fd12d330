"""The stores of the embedded stack answer as those in memory, whatever happens: the histories of
the simulation on a SQLite file, with several processes that are killed.
"""

from pathlib import Path

import pytest

from tests.crons import LONG
from tests.simulation.mirrored import MirroredHistory

SEEDS = range(60) if LONG else (3, 4, 7, 8)
"""3: with HTTP callbacks; 7: sequences; 8: audits every minute."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_processes_on_one_file_answer_as_the_stores_in_memory(seed: int, tmp_path: Path) -> None:
    history = MirroredHistory(seed, tmp_path / "nextfire.db")

    outcome = history.play()

    assert not outcome.violations, outcome.violations[0]
    assert history.processes.calls
    assert history.processes.kills
