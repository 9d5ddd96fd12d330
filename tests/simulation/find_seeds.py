"""Looks for seeds that reveal planted defects: a change of the flows moves them.

``python -m tests.simulation.find_seeds "a missing hand-back"`` plays histories on all cores until
some reveal the defect, and prints their seeds. ``--help`` lists the defects.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from multiprocessing import Pool
from typing import Any

import pytest

from tests.simulation import test_callbacks, test_planted_loops, test_redrives, test_sequences
from tests.simulation.history import CALLING, SEQUENCED, History
from tests.simulation.redrives import redrives
from tests.simulation.sequences import SEQUENCES

_WANTED = 3
_AT_ONCE = 50

Plant = Callable[[pytest.MonkeyPatch], None]


def defects() -> dict[str, tuple[Plant, str, Iterable[int]]]:
    """Each planted defect with the pattern of its violations and the seeds to try."""
    of: dict[str, tuple[Any, Iterable[int]]] = {
        "callbacks": (test_callbacks.PLANTS, count(3, CALLING)),
        "sequences": (test_sequences.PLANTS, count(SEQUENCED, SEQUENCES)),
        "loops": (test_planted_loops.LOOPS, count()),
        "redrives": (test_redrives.PLANTS, filter(redrives, count())),
    }
    return {
        name: (plant, pattern, seeds)
        for plants, seeds in of.values()
        for name, (plant, pattern) in plants.items()
    }


def reveals(asked: tuple[str, int]) -> int | None:
    """The seed, if its history reveals the defect."""
    name, seed = asked
    plant, pattern, _ = defects()[name]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found = History(seed).play().violations
    return seed if any(re.search(pattern, each) for each in found) else None


def find(name: str) -> Iterator[int]:
    """The first seeds that reveal the defect."""
    seeds = iter(defects()[name][2])
    with Pool() as pool:
        while True:
            asked = [(name, seed) for seed in islice(seeds, _AT_ONCE)]
            yield from (each for each in pool.imap(reveals, asked) if each is not None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="\n  ".join(["defects:", *defects()]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("defect", nargs="+", choices=[*defects()], metavar="DEFECT")
    for asked_for in parser.parse_args().defect:
        found = islice(find(asked_for), _WANTED)
        sys.stdout.write(f"{asked_for}: {' '.join(map(str, found))}\n")
        sys.stdout.flush()
