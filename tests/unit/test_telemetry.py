"""What is logged, and at which level."""

from __future__ import annotations

import json

import pytest

from nextfire.domain.run import Run, RunState
from nextfire.usecases.dispatch.report import TickReport
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


def test_the_ticks_of_each_watcher_group_are_counted_separately(
    capsys: pytest.CaptureFixture[str],
) -> None:
    telemetry = Telemetry("watcher")
    for group, ticks in ((0, 2), (1, 3)):
        telemetry.took_lease(group, 1)
        for _ in range(ticks):
            telemetry.tick(TickReport(polled=True))
    telemetry.flush()

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counted = [(each["service"], each["group"], each["Ticks"]) for each in lines if "Ticks" in each]
    assert counted == [("watcher", "0", [2.0]), ("watcher", "1", [3.0])]
    for each in lines:
        for directive in each.get("_aws", {}).get("CloudWatchMetrics", []):
            assert directive["Dimensions"] == [["service", "group"]]
