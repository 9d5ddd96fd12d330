"""What is logged, and at which level."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.ports.control import Lease
from nextfire.domain.run import Run, RunState
from nextfire.usecases.dispatch.report import TickReport
from nextfire.usecases.handled import Disposition, Handled
from nextfire.wiring.telemetry import Telemetry, WorkerTelemetry
from tests.builders import NOON, run_key

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


SUCCESSES = [Run(run_key(NOON + timedelta(minutes=n)), RunState.SUCCEEDED) for n in range(200)]


def succeeded(run: Run) -> Handled:
    return Handled(Disposition.ACKNOWLEDGE, "exit code 0", run, AttemptOutcome.SUCCEEDED, True)


def logged(telemetry: Telemetry, capsys: pytest.CaptureFixture[str], *runs: Handled) -> list[str]:
    for each in runs:
        telemetry.handled(each)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line["execution_id"] for line in lines if "execution_id" in line]


@pytest.mark.parametrize(("part", "least", "most"), [(0, 0, 0), (0.1, 5, 40), (1, 200, 200)])
def test_a_sample_of_the_runs_that_succeed_is_logged(
    capsys: pytest.CaptureFixture[str], part: float, least: int, most: int
) -> None:
    telemetry = Telemetry(f"sample-{part}")
    telemetry.sample(part)

    found = logged(telemetry, capsys, *map(succeeded, SUCCESSES))

    assert least <= len(found) <= most
    assert logged(telemetry, capsys, *map(succeeded, SUCCESSES)) == found, "the same every time"


def test_whatever_did_not_succeed_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = Telemetry("sample-others")
    telemetry.sample(0)
    run = SUCCESSES[0]
    others = [
        Handled(Disposition.ACKNOWLEDGE, "exit code 1", run, AttemptOutcome.FAILED, True),
        Handled(Disposition.LEAVE, "runs on w", run),
        Handled(Disposition.ACKNOWLEDGE, "late", run, skipped=True),
    ]

    assert len(logged(telemetry, capsys, *others)) == 3


@pytest.mark.parametrize(("level", "least"), [("ERROR", 40), ("WARNING", 30), ("INFO", 20)])
def test_the_level_of_logs_is_the_configured_one_although_lambda_lets_metrics_pass(
    monkeypatch: pytest.MonkeyPatch, level: str, least: int
) -> None:
    monkeypatch.setenv("AWS_LAMBDA_LOG_LEVEL", "INFO")  # of executors: metrics count as INFO
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", level)

    assert Telemetry(f"executor-{level}").logger.log_level == least


def test_lambda_decides_the_level_of_logs_if_none_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_LAMBDA_LOG_LEVEL", "ERROR")
    monkeypatch.delenv("POWERTOOLS_LOG_LEVEL", raising=False)

    assert Telemetry("executor-unconfigured").logger.log_level == 40


def counts(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [
        {name: line[name] for name in ("Started", "Succeeded", "Failed") if name in line}
        for line in lines
        if "_aws" in line
    ]


def test_a_worker_publishes_successes_together_and_failures_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    telemetry = WorkerTelemetry(every=timedelta(days=1))
    for run in SUCCESSES[:150]:
        telemetry.handled(succeeded(run))
    assert counts(capsys) == []

    failed = Handled(Disposition.ACKNOWLEDGE, "1", SUCCESSES[0], AttemptOutcome.FAILED, True)
    telemetry.handled(failed)

    assert counts(capsys) == [{"Started": [151.0], "Succeeded": [150.0], "Failed": [1.0]}]
    telemetry.flush()
    assert counts(capsys) == []


def test_an_idle_worker_publishes_its_last_successes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    class Timer:
        def __init__(self, seconds: float, do: Callable[[], None]) -> None:
            started.append((seconds, do))

        def start(self) -> None: ...
        def cancel(self) -> None: ...

    monkeypatch.setattr(threading, "Timer", Timer)
    telemetry = WorkerTelemetry()
    for run in SUCCESSES[:2]:
        telemetry.handled(succeeded(run))

    [(seconds, do)] = started
    do()

    assert seconds == 10
    assert counts(capsys) == [{"Started": [2.0], "Succeeded": [2.0]}]


def test_the_ticks_of_each_watcher_group_are_counted_separately(
    capsys: pytest.CaptureFixture[str],
) -> None:
    telemetry = Telemetry("watcher")
    for group, ticks in ((0, 2), (1, 3)):
        telemetry.took_lease(group, Lease("a", 1, 0))
        for _ in range(ticks):
            telemetry.tick(TickReport(polled=True))
    telemetry.flush()

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counted = [(each["service"], each["group"], each["Ticks"]) for each in lines if "Ticks" in each]
    assert counted == [("watcher", "0", [2.0]), ("watcher", "1", [3.0])]
    for each in lines:
        for directive in each.get("_aws", {}).get("CloudWatchMetrics", []):
            assert directive["Dimensions"] == [["service", "group"]]


def test_no_metric_is_written_where_metrics_are_disabled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "true")
    telemetry = Telemetry("watcher")
    telemetry.took_lease(0, Lease("a", 1, 0))
    telemetry.tick(TickReport(polled=True, undelivered=1, quarantined=1))
    telemetry.flush()

    assert "_aws" not in capsys.readouterr().out
