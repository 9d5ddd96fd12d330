"""Benchmarks that count, price or repeat the calls of a stack: each is started once, tiny."""

from __future__ import annotations

from datetime import timedelta

import pytest

from benchmarks import chain, dispatch, executor_host, fixed, flatness, idle, run_usage, units
from benchmarks.report import Result
from benchmarks.simulated import next_hour
from infra.settings import Settings
from nextfire_cli.cost.usage import ASLEEP
from tests.integration.benchmarks.conftest import StackOnMoto, Start, shrink

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def short_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate seconds: each takes many calls."""
    shrink(monkeypatch, units, _MINUTE=SECOND, _HALF=SECOND / 2, _WARM_UP=SECOND)
    shrink(monkeypatch, idle, _MINUTE=SECOND, _HOUR=SECOND)


def test_dispatch(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, dispatch, RUNS=20, REPETITIONS=1, _HOUR=55 * SECOND)

    assert start("dispatch")["cpu_ratio"]


def test_units(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, units, TOGETHER=2, _APART=timedelta(minutes=2))

    figures = start("units")

    sends = figures["sqs_sends_per_run"], figures["lonely_sqs_sends_per_run"]
    assert sends == (0.5, 1)


def test_cost(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, run_usage, RUNS=1, _BARE=1, WARM_UP=1, _HOUR=timedelta(minutes=1))
    shrink(monkeypatch, executor_host, WARM_UP=1)

    assert start("cost")["usd_per_million_lambda"]


def test_price_of_fixed() -> None:
    result = Result()

    fixed._price(result, Settings(), ASLEEP, alarms=12, auditor_s=0.1)

    assert result.values["usd_per_month"]


def test_minute_of_flatness(stack: StackOnMoto, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, flatness, RUNS=1, _MINUTE=4 * SECOND)
    first_at = next_hour()

    minute = flatness.Group(stack, 3, first_at).minute(first_at)

    assert minute.tally.calls["sqs SendMessageBatch"] == 1


def test_units_of_chain(stack: StackOnMoto, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch, chain, UNITS_CHAINS=1, LINKS=2, UNITS_WIDTH=2, MAX_SENT=2)
    monkeypatch.setattr(chain, "running_stack", stack.running)
    result = Result()

    chain._units(result)

    assert result.values.keys() == {"write_units_per_link", "write_units_per_parent"}
