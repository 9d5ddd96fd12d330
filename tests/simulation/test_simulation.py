"""Histories of the simulation: they pass, repeat exactly, and contain every flow."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from nextfire.testing.kernel import Actor, Kernel
from tests.builders import at
from tests.simulation.endpoint_flows import ENDPOINT_FLOWS
from tests.simulation.flows import FLOWS
from tests.simulation.history import CALLING, History
from tests.simulation.random_scripts import RandomScripts
from tests.simulation.sequences import SEQUENCE_FLOWS


def test_a_script_that_runs_twice_is_found() -> None:
    def twice(runner: Any, call: Any, supervisor: Any) -> Any:
        once(runner, call, supervisor)
        return once(runner, call, supervisor)

    once = RandomScripts.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RandomScripts, "run", twice)
        wrong = [each for seed in range(10) for each in History(seed).play().violations]
    assert any("without its own claim" in each for each in wrong)


def test_a_history_without_end_is_ended() -> None:
    kernel = Kernel(1, at("12:00"))
    actor = Actor(kernel, "restless")

    def restless() -> None:
        while True:
            kernel.pause(0)

    actor.submit(restless)
    with pytest.raises(AssertionError, match="no end"):
        kernel.run(lambda: False)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_occurrence_is_accounted_for(seed: int) -> None:
    assert not History(seed).play().violations


@pytest.mark.parametrize(
    "seed",
    [
        1295,
        1983,
        271,
        2717,
        2939,
        3740,
        4368,
        5363,
        5438,
        5982,
        7861,
        8883,
        10298,
        10372,
        11284,
        11549,
        11601,
        12994,
        15607,
        18881,
        30224,
        31128,
        37701,
        47472,
        54239,
        61606,
        62842,
        67711,
        83393,
        333663,
        333700,
        356178,
        368528,
    ],
)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    assert not History(seed).play().violations


def test_a_seed_replays_exactly_in_any_process() -> None:
    # In seed 33 a process with several threads dies; seed 1774 depends on the order of a set, which
    # differs between the hash seeds 1 and 5; in seed 11043 calls wait for a limit.
    seeds = [0, 33, 1774, 11043]
    script = (
        "from tests.simulation.history import History\n"
        f"print([History(seed).play().digest for seed in {seeds}])"
    )

    def digests(hash_seed: str) -> str:
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    first = digests("1")
    assert first == digests("5")
    assert first.strip() == str([History(seed).play().digest for seed in seeds])


def test_a_history_can_be_read() -> None:
    history = History(3, logs=True)
    history.play()
    assert history.kernel.events
    assert any("jobs.create" in event for event in history.kernel.events)


_MANY_SCRIPTS = 40
REMOVALS = [9, 369, 1969]
"""Seeds in which runs wait for a pool that was removed for longer than its grace."""
_RICH = [641, 1227, 1161, 363, 1057, 43, 767, 1121]
"""Seeds in which much happens. They are played first; others follow if something was not seen."""
WRITES = ["queue.send", "due.put", "due.delete", "runs.claim", "runs.advance", "jobs.update"]


@dataclass
class _Seen:
    """What happened in several histories."""

    begun: set[str] = field(default_factory=set)
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)
    scripts: int = 0

    def missing(self) -> list[object]:
        """The flows that have not begun, and the faults that have not happened."""
        flows = {flow.name for flow in [*FLOWS, *ENDPOINT_FLOWS, *SEQUENCE_FLOWS]}
        deaths = ("died before", "died after")
        missing: list[object] = [*flows - self.begun]
        for call in WRITES:
            kinds = [("refused",), ("unsent",), ("unanswered",), deaths]
            missing += [(call, *each) for each in kinds if not any(self.hit[call, k] for k in each)]
        return missing if self.scripts > _MANY_SCRIPTS else [*missing, "scripts"]


def test_every_flow_happens_and_every_write_goes_wrong() -> None:
    """Over some seeds every flow begins, and the most important writes are refused, left without an
    answer, and the last call of a process that dies.
    """
    seen = _Seen()
    for seed in [*_RICH, *range(160), *range(163, 663, CALLING)]:
        history = History(seed, logs=True)
        outcome = history.play()
        begun = {event[32:] for event in history.kernel.events or [] if " dice " in event}
        seen.begun |= begun
        seen.hit += outcome.hit
        seen.scripts += outcome.scripts
        if not seen.missing():
            return
    pytest.fail(f"not seen in any history: {seen.missing()}")


@pytest.mark.parametrize("seed", REMOVALS)
def test_runs_of_a_removed_pool_end_after_the_grace(seed: int) -> None:
    history = History(seed)

    assert not history.play().violations

    runs = history.stores.runs.items.values()
    reasons = [attempt.reason or "" for run in runs for attempt in run.attempts]
    assert any("no longer exists" in reason for reason in reasons)
