"""Plays histories: ``python -m tests.simulation --seeds 2000``; replays one: ``--seed 17``; plays
only histories of sequences: ``--sequences --seeds 100``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from tests.simulation.history import SEQUENCED, History, Outcome
from tests.simulation.sequences import SEQUENCES

_CHUNK = 25
_PROGRESS_EVERY = 10.0
_AGAIN = "replay with its events: python -m tests.simulation"


@dataclass
class Total:
    """Totals of many histories."""

    histories: int = 0
    occurrences: int = 0
    steps: int = 0
    scripts: int = 0
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[tuple[int, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.histories += 1
        self.occurrences += outcome.occurrences
        self.steps += outcome.steps
        self.scripts += outcome.scripts
        self.hit.update(outcome.hit)
        if outcome.violations:
            self.failed.append((outcome.seed, outcome.violations[0]))

    def merge(self, other: Total) -> None:
        self.histories += other.histories
        self.occurrences += other.occurrences
        self.steps += other.steps
        self.scripts += other.scripts
        self.hit.update(other.hit)
        self.failed += other.failed


def play(seeds: range) -> Total:
    """Play the histories of *seeds*."""
    total = Total()
    for seed in seeds:
        try:
            total.add(History(seed).play())
        except Exception as error:  # noqa: BLE001 — the other histories are played nevertheless
            total.histories += 1
            total.failed.append((seed, f"{type(error).__name__}: {error}"))
    gc.collect()
    return total


def _begin() -> None:
    """Disable the garbage collector: a history creates little garbage, and collecting takes a third
    of the time.
    """
    gc.collect()
    gc.freeze()
    gc.disable()


def replay(seed: int) -> list[str]:
    """The history of *seed*, event by event, and its violations."""
    history = History(seed, logs=True)
    try:
        violations: Sequence[str] = history.play().violations
    except Exception as error:  # noqa: BLE001 — its events say why
        violations = [f"{type(error).__name__}: {error}"]
    wrong = [f"VIOLATED: {each}" for each in violations] or ["no violations"]
    return [f"{history.setting}", *(history.kernel.events or []), *wrong]


def table(hit: Counter[tuple[str, str]]) -> str:
    """Injected faults: a line for each call, a column for each kind of fault."""
    kinds = sorted({kind for _, kind in hit})
    lines = [f"{'':<24}" + "".join(f"{kind:>13}" for kind in kinds)]
    lines += [
        f"{call:<24}" + "".join(f"{hit[call, kind] or '':>13}" for kind in kinds)
        for call in sorted({call for call, _ in hit})
    ]
    return "\n".join(lines)


def seeds_of(first: int, count: int, *, sequences: bool) -> range:
    """The first *count* seeds from *first* on; *sequences*: of histories with sequences only."""
    if not sequences:
        return range(first, first + count)
    first += (SEQUENCED - first) % SEQUENCES
    return range(first, first + count * SEQUENCES, SEQUENCES)


def play_all(seeds: range, jobs: int) -> Total:
    """Play the histories of *seeds*, in *jobs* processes."""
    total, began_at = Total(), time.monotonic()
    report_at = began_at + _PROGRESS_EVERY
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    with ProcessPoolExecutor(jobs, initializer=_begin) as processes:
        for done in as_completed([processes.submit(play, chunk) for chunk in chunks]):
            for seed, wrong in done.result().failed:
                print(f"seed {seed}: {wrong}\n  {_AGAIN} --seed {seed}", flush=True)
            total.merge(done.result())
            if time.monotonic() >= report_at:
                report_at += _PROGRESS_EVERY
                rate = total.histories / (time.monotonic() - began_at)
                print(
                    f"{total.histories} of {len(seeds)} histories, {rate:.0f} a second, "
                    f"{len(total.failed)} failed",
                    flush=True,
                )
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=2_000, help="number of histories (%(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (%(default)s)")
    parser.add_argument("--seed", type=int, help="play this history only and print its events")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)"
    )
    parser.add_argument(
        "--sequences", action="store_true", help="play only histories of sequences, one in 20 seeds"
    )
    asked = parser.parse_args()
    if asked.seed is not None:
        print("\n".join(replay(asked.seed)))
        return
    began_at = time.monotonic()
    seeds = seeds_of(asked.first, asked.seeds, sequences=asked.sequences)
    total = play_all(seeds, asked.jobs)
    took = time.monotonic() - began_at
    if total.failed:
        print("\n".join(replay(min(total.failed)[0])))
    print(
        f"{total.histories} histories in {took:.0f} s, {total.histories / took:.1f} a second: "
        f"{total.steps} steps, {total.scripts} scripts begun under faults, {total.occurrences} "
        "occurrences accounted for"
    )
    print(table(total.hit))
    figures = {
        "histories": total.histories,
        "violations": len(total.failed),
        "faults_injected": total.hit.total(),
    }
    print(json.dumps(figures))
    sys.exit(1 if total.failed else 0)


if __name__ == "__main__":
    main()
