"""The cost of runs: prices times usage, and what the command shows of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.settings import Settings
from nextfire_cli.cost import model
from nextfire_cli.cost.model import DueCapacity, Load, PoolKind, bill
from nextfire_cli.cost.peers import peers
from nextfire_cli.cost.prices import PRICES, Cost, Usage, costs
from nextfire_cli.cost.usage import ASLEEP, AWAKE
from nextfire_cli.main import app

TEN_PER_SECOND = 864_000


def usd_of(month: model.Bill, what: str) -> float:
    found = [cost.usd for cost in month.scheduler if cost.what.startswith(what)]
    assert found, what
    return sum(found)


def test_items_of_a_unit_share_its_free_amount() -> None:
    first, second, third = costs(
        [
            Usage("watcher", "GB-s on arm64", 1_400_000),
            Usage("watcher", "GB-s on arm64", 100_000),
            Usage("lease", "write units", 2_000_000),
        ]
    )
    assert first.usd == pytest.approx(18.667, abs=0.001)
    assert first.usd_with_free_tier == pytest.approx(13.333, abs=0.001)
    assert second.usd_with_free_tier == second.usd
    assert third == Cost("lease", "write units", 2_000_000, 1.25, 1.25)


@pytest.mark.parametrize("pool", ["lambda", "fargate"])
def test_tables_cost_what_their_units_and_bytes_cost(pool: PoolKind) -> None:
    load = Load(36_000, TEN_PER_SECOND, pool)
    month = bill(load)
    assert load.runs == pytest.approx(10 * 3600 * 730)
    assert usd_of(month, "tables: writes") == pytest.approx(load.runs * 4 * PRICES["write units"])
    gb = (load.runs * load.usage.record_bytes * 30 / (730 / 24) + 36_000 * 1_700) / 1e9
    assert usd_of(month, "tables: storage") == pytest.approx(0.25 * gb)
    assert usd_of(month, "tables: point-in-time recovery") == pytest.approx(0.20 * gb)
    assert month.per_million == pytest.approx(month.usd / load.runs * 1e6)


def test_full_batches_save_requests_of_queues_and_functions() -> None:
    one, ten = bill(Load(1, TEN_PER_SECOND)), bill(Load(1, TEN_PER_SECOND, batch_size=10))
    millions = one.runs / 1e6
    assert usd_of(one, "queues") - usd_of(ten, "queues") == pytest.approx(0.9 * millions)
    invocations = usd_of(one, "executor: invocations")
    assert usd_of(ten, "executor: invocations") == pytest.approx(invocations / 10)
    assert usd_of(ten, "logs") < usd_of(one, "logs")


def test_more_memory_costs_less_time_and_never_less_money() -> None:
    small, large = (usd_of(bill(Load(1, 1e6, memory=m)), "executor: before") for m in (512, 1769))
    assert small < large < 1769 / 512 * small


def test_an_idle_stack_pays_for_sleeping_watchers_and_polls() -> None:
    month = bill(Load(0, 0))
    assert usd_of(month, "watchers, asleep") < 2.5
    assert not [cost for cost in month.scheduler if cost.what.startswith("watchers, awake")]
    assert usd_of(month, "executor: polls") == pytest.approx(0.3285)
    assert month.per_million == 0
    assert ASLEEP.seconds < AWAKE.seconds / 20


def test_seldom_runs_keep_the_watchers_awake_for_minutes_only() -> None:
    seldom, often = bill(Load(1, 10)), bill(Load(1, 100_000))
    assert usd_of(seldom, "watchers, awake") < 0.02 * usd_of(often, "watchers, awake") * 1.1
    assert not [cost for cost in often.scheduler if cost.what.startswith("watchers, asleep")]


def test_scripts_are_counted_apart() -> None:
    idle, busy = bill(Load(1, 1_000)), bill(Load(1, 1_000, seconds=60))
    took = busy.usd_scripts - idle.usd_scripts
    assert took == pytest.approx(1_000 * 730 / 24 * 60 * 0.5 * PRICES["GB-s on arm64"])
    assert busy.usd == pytest.approx(idle.usd, rel=0.02)


def test_a_busy_task_is_shared_with_the_scripts() -> None:
    """Scripts that fill the tasks leave only the workers' own CPU to the scheduler."""
    filled = bill(Load(1, TEN_PER_SECOND, "fargate", seconds=2, memory=1024))
    cpu = Load(1, TEN_PER_SECOND, "fargate").usage.cpu_ms / 1000 / 3600 / model.TASK_LOAD
    vcpu = filled.runs * cpu * PRICES["Fargate vCPU-h on arm64"]
    assert usd_of(filled, "workers: before") == pytest.approx(vcpu)


def test_starts_of_interpreters_are_items_of_the_scripts() -> None:
    load = Load(1, TEN_PER_SECOND)
    [start] = [cost for cost in bill(load).scripts if "start" in cost.what]
    seconds = load.usage.start_ms / 1000 * 1769 / 512
    assert start.amount == pytest.approx(load.runs * seconds / 2)
    without = replace(load, measured=replace(load.usage, start_ms=0))
    assert bill(without).usd == bill(load).usd
    assert bill(without).usd_scripts == 0


@pytest.mark.parametrize(
    ("changes", "hours"),
    [
        ({}, 0.0),  # the task has that time left
        ({"task_cpu": 256, "task_memory": 1024}, 243.82 - 182.5),
        ({"runs_per_day": 100 * TEN_PER_SECOND}, 19_856.0),
    ],
)
def test_starts_in_tasks_cost_what_no_task_has_left(
    changes: dict[str, float], hours: float
) -> None:
    values: dict[str, Any] = {"jobs": 1, "runs_per_day": TEN_PER_SECOND, **changes}
    month = bill(Load(pool="fargate", **values))
    found = [cost for cost in month.scripts if "start" in cost.what]
    assert [cost.amount for cost in found] == pytest.approx([hours, 4 * hours], rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "jobs", "capacity"),
    [
        (0, 0, DueCapacity(1, 11)),
        (10, 36_000, DueCapacity(29, 12)),
        (1_000, 3_600_000, DueCapacity(2_858, 198)),
    ],
)
def test_a_steady_load_pays_for_the_capacity_of_its_writes_and_polls(
    rate: int, jobs: int, capacity: DueCapacity
) -> None:
    load = Load(jobs, rate * 86_400)
    steady = replace(load, steady=True)
    month, default = bill(steady), bill(load)

    assert (load.due_capacity, steady.due_capacity) == (None, capacity)
    hours = {"writes": capacity.writes * 730, "reads": capacity.reads * 730}
    for kind, amount in hours.items():
        price = PRICES[f"{kind.removesuffix('s')} unit hours"]
        assert usd_of(month, f"due table: {kind}") == pytest.approx(amount * price)
    assert usd_of(month, "tables: writes") == usd_of(default, "tables: writes") / 2
    assert usd_of(month, "alarms") == pytest.approx(usd_of(default, "alarms") + 0.20)
    if rate:
        assert usd_of(month, "watchers, awake: polls") < usd_of(default, "watchers, awake: polls")
        assert month.per_million < default.per_million - 0.7


def test_the_bounds_of_cost_are_met_by_steady_loads() -> None:
    for rate in (10, 1_000):
        load = Load(rate * 3_600, rate * 86_400, steady=True)
        assert bill(load).per_million < 5
        small = replace(load, pool="fargate", task_cpu=256, task_memory=1024)
        assert bill(small).per_million < 4


def test_a_smaller_task_costs_less_while_it_is_not_used() -> None:
    small = bill(Load(1, TEN_PER_SECOND, "fargate", task_cpu=256, task_memory=512))

    hours = {"Fargate vCPU-h on arm64": 0.25 * 730, "Fargate GB-h on arm64": 0.5 * 730}
    price = sum(amount * PRICES[unit] for unit, amount in hours.items())
    assert usd_of(small, "workers") == pytest.approx(price)


def test_peers_are_priced_by_their_units() -> None:
    load = Load(1_100, 1e6 / (730 / 24))
    prices = {peer.name.split(",")[0]: peer.usd for peer in peers(load)}
    assert prices == pytest.approx(
        {"EventBridge Scheduler": 1.0, "Step Functions": 51.0, "QStash": 11.0}
    )


def test_the_command_answers_without_an_api() -> None:
    arguments = ["cost", "--jobs", "36000", "--runs-per-day", "864000", "-o", "json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    total = sum(item["usd"] for item in document["items"])
    assert document["usdPerMonth"] == pytest.approx(total, abs=0.02)
    assert document["usdPerMillionRuns"] == pytest.approx(total / 26.28, abs=0.01)
    assert [other["name"] for other in document["others"]]
    table = CliRunner().invoke(app, arguments[:-2])
    assert "USD per million runs" in table.stdout
    assert "EventBridge Scheduler" in table.stdout
    assert document["dueCapacity"] is None
    assert "dueCapacity" not in table.stdout


def test_the_command_prints_the_setting_for_a_steady_load() -> None:
    arguments = ["cost", "--jobs", "36000", "--runs-per-day", "864000", "--steady"]
    table = CliRunner().invoke(app, arguments)
    document = json.loads(CliRunner().invoke(app, [*arguments, "-o", "json"]).stdout)

    assert 'Set "dueCapacity": {"writes": 29, "reads": 12}.' in " ".join(table.stdout.split())
    assert document["dueCapacity"] == {"writes": 29, "reads": 12}
    assert Settings.from_context({"dueCapacity": document["dueCapacity"]}).due_capacity
