"""What is logged, and at which level."""

from __future__ import annotations

import json

import pytest

from nextfire.domain.run import Run, RunState
from nextfire.usecases.handled import Disposition, Handled
from nextfire.wiring.telemetry import Telemetry
from tests.builders import run_key

DEAD, SUCCEEDED = (Run(run_key(), state) for state in (RunState.DEAD, RunState.SUCCEEDED))


@pytest.mark.parametrize(
    ("run", "quarantined", "level"),
    [
        (DEAD, False, "ERROR"),
        (SUCCEEDED, False, "INFO"),
        (SUCCEEDED, True, "ERROR"),
        (None, True, "ERROR"),
        (None, False, "INFO"),
    ],
)
def test_deaths_and_undecodable_messages_are_logged_as_errors(
    capsys: pytest.CaptureFixture[str], run: Run | None, level: str, *, quarantined: bool
) -> None:
    handled = Handled(Disposition.ACKNOWLEDGE, "why", run, quarantined=quarantined)

    Telemetry(f"telemetry-{level}-{quarantined}-{run and run.state}").handled(handled)

    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line)["level"] == level
