"""The figures that the benchmarks compute from measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.embedded import add_own
from benchmarks.figures import (
    Account,
    Occurrence,
    Sent,
    Started,
    account,
    item_bytes,
    percentile,
    read_units,
    worst,
)
from benchmarks.report import Result
from benchmarks.side_by_side import Figures
from nextfire.wiring import execution
from nextfire_cli.local.stack import LocalStack
from tests.builders import NOON

FOLDER = Path(str(benchmarks.__file__)).parent
SECOND = timedelta(seconds=1)


def test_percentiles_lie_within_the_values() -> None:
    values = [float(number) for number in range(1, 102)]

    assert percentile(values, 50) == pytest.approx(51)
    assert percentile(values, 99) == pytest.approx(100)
    assert percentile([7.0], 99) == 7.0


def occurrence(job: str = "a", after: float = 0) -> Occurrence:
    return Occurrence(job, NOON + after * SECOND)


def sent(of: Occurrence, late: float = 0, message_id: str = "m1") -> Sent:
    return Sent(of, message_id, of.at + late * SECOND)


def started(of: Occurrence, late: float = 0, attempts: int = 1, *, ended: bool = True) -> Started:
    return Started(of, of.at + late * SECOND, attempts, ended)


def of_one(*events: Sent | Started) -> Account:
    """The account of *events* with one expected occurrence: job `a` at noon."""
    return account(
        [occurrence()],
        [event for event in events if isinstance(event, Sent)],
        [event for event in events if isinstance(event, Started)],
    )


def test_run_that_went_well_is_late_and_nothing_else() -> None:
    run = occurrence()

    found = of_one(sent(run, 0.25), started(run, 0.5))

    assert (found.dispatch_lateness, found.start_lateness) == ({run: 0.25}, {run: 0.5})
    assert not found.lost | found.duplicated | found.sent_twice | found.unfinished
    assert not found.unexpected


def test_occurrence_without_record_is_lost_even_if_it_was_sent() -> None:
    assert of_one(sent(occurrence())).lost == {occurrence()}


@pytest.mark.parametrize(
    "records",
    [[started(occurrence(), attempts=2)], [started(occurrence()), started(occurrence(), 3)]],
    ids=["two attempts", "two records"],
)
def test_run_that_started_twice_is_duplicated(records: list[Started]) -> None:
    assert of_one(*records).duplicated == {occurrence()}


def test_the_first_of_two_messages_counts_and_both_are_reported() -> None:
    run = occurrence()

    found = of_one(sent(run, 4, "m2"), sent(run, 1, "m1"), started(run))

    assert found.dispatch_lateness == {run: 1.0}
    assert found.sent_twice == {run}
    assert not found.duplicated


def test_message_that_is_received_twice_was_sent_once() -> None:
    assert not of_one(sent(occurrence()), sent(occurrence())).sent_twice


def test_unfinished_and_unexpected_runs_are_reported() -> None:
    stranger = occurrence("b")

    found = of_one(started(occurrence(), ended=False), started(stranger), sent(occurrence("c")))

    assert found.unfinished == {occurrence()}
    assert found.unexpected == {stranger, occurrence("c")}


def test_worst_lateness_is_of_what_was_due_in_the_span() -> None:
    late = {occurrence(after=0): 9.0, occurrence(after=1): 2.0, occurrence(after=2): 8.0}

    assert worst(late, NOON + SECOND, NOON + 2 * SECOND) == 2.0
    assert worst(late, NOON + 5 * SECOND, NOON + 9 * SECOND) == 0.0


def test_reads_cost_by_their_size() -> None:
    assert read_units([], consistent=False, one_by_one=False) == 0.5
    assert read_units([3000, 3000], consistent=False, one_by_one=False) == 1.0
    assert read_units([3000, 3000, 3000], consistent=False, one_by_one=True) == 1.5
    assert read_units([4097], consistent=True, one_by_one=True) == 2.0


def test_items_are_as_large_as_names_and_values() -> None:
    item: dict[str, dict[str, Any]] = {
        "id": {"S": "é"},
        "n": {"N": "1234"},
        "l": {"L": [{"S": "ab"}]},
        "b": {"BOOL": True},
    }

    assert item_bytes(item) == (2 + 2) + (1 + 3) + (1 + 3 + 1 + 2) + (1 + 1)


def test_a_figure_misses_its_bound_on_either_side() -> None:
    result = Result()
    result.add("goodput", "goodput", 0.89, least=0.9)
    result.add("share", "share", 0.9, least=0.9)
    result.add("memory", "memory", 131, most=130, unit="MiB")
    assert [(row.bound, row.met) for row in result.rows] == [
        ("≥ 0.9", False),
        ("≥ 0.9", True),
        ("≤ 130 MiB", False),
    ]


def figures(**fields: float) -> Figures:
    values = {each.name: 1 for each in dataclasses.fields(Figures)}
    return Figures(**values | fields)  # type: ignore[arg-type] # whole numbers


def test_the_embedded_stack_is_compared_with_the_better_peer_figure_by_figure() -> None:
    result, own = Result(), figures(start_p99_s=3, burst_s=12, cpu_per_run_s=0.03)
    peers = [figures(burst_s=10, cpu_per_run_s=0.06), figures(burst_s=20, cpu_per_run_s=0.01)]

    add_own(result, own, peers)

    ratios = {name: value for name, value in result.values.items() if name.endswith("_ratio")}
    assert ratios == {"start_p99_ratio": 3, "burst_ratio": 1.2, "cpu_ratio": 3}
    bounds = {row.measured: row.met for row in result.rows if row.what.startswith("the same")}
    assert bounds == {"1.2": True, "3": False}


def test_without_peers_there_are_no_ratios() -> None:
    result = Result()

    add_own(result, figures(), [])

    assert not [name for name in result.values if name.endswith("_ratio")]
    assert result.values["lost"] == 1


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_can_be_measured_and_starts_the_stack_that_it_says(name: str) -> None:
    module = vars(import_module(f"benchmarks.{name}"))

    emulated = bool(module.keys() & {"running_stack", "measure_paused"})
    embedded = bool(module.keys() & {"EmbeddedStack", "embedded_stack"})
    assert callable(module["measure"])
    assert BENCHMARKS[name].stack == _STACKS[emulated, embedded]


_STACKS: Mapping[tuple[bool, bool], str] = {
    (False, False): "none",
    (True, False): "emulated",
    (False, True): "embedded",
    (True, True): "both",
}


def test_no_benchmark_is_missing_from_the_list() -> None:
    measure = {
        path.stem for path in FOLDER.glob("*.py") if "\ndef measure() ->" in path.read_text()
    }

    assert measure == BENCHMARKS.keys()


@pytest.mark.parametrize("module", [path.stem for path in sorted(FOLDER.glob("*.py"))])
def test_every_module_can_be_imported(module: str) -> None:
    import_module(f"benchmarks.{module}")


def test_what_benchmarks_replace_exists() -> None:
    assert "ProcessScriptRunner" in vars(execution)
    assert "_wake_watcher" in vars(LocalStack)


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_each_benchmark(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments:
        with pytest.raises(SystemExit, match="0"):
            main(arguments)
    else:
        assert main(arguments) == 0

    lines = capsys.readouterr().out.splitlines()
    for name, of in BENCHMARKS.items():
        [line] = [line for line in lines if line.startswith(f"{name} ")]
        assert line.split(maxsplit=3)[1:] == [str(of.minutes), of.stack, of.what]
    assert max(map(len, lines)) <= 100


def test_an_unknown_name_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["units", "unit"])

    error = capsys.readouterr().err
    assert error.startswith("Unknown benchmark 'unit'.")
    assert all(f"\n{name} " in error for name in BENCHMARKS)
