"""The test that killed each mutant in its last trial, kept between runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.mutation.source import Mutant

_NEAR = 20


class Ledger:
    """Kept in *file*, one line per verdict, so that an interrupted run is of use, too.

    The test that killed a mutant before is tried first and must kill it again, unless a run resumes
    an earlier one. Next come the tests that killed mutants near it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._killers: dict[str, str | None] = {}
        self._around: dict[str, str] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                name, killer, around = json.loads(line)
                self._killers[name], self._around[name] = killer, around

    def killer(self, mutant: Mutant) -> str | None:
        """The id of the test that failed; None if none did, or if it was never tried."""
        return self._killers.get(mutant.name)

    def still(self, mutant: Mutant) -> str | None:
        """Like `killer`, but also None if the surrounding function has changed since."""
        same = self._around.get(mutant.name) == mutant.around
        return self.killer(mutant) if same else None

    def near(self, mutant: Mutant) -> list[str]:
        """The tests that killed other mutants: those of its function, then those of its file, most
        frequent first.
        """
        place, _, _ = mutant.name.partition(": ")
        found: Counter[str] = Counter()
        for name, killer in self._killers.items():
            if killer is not None and name.startswith(f"{mutant.path} "):
                found[killer] += 1000 if name.startswith(f"{place}: ") else 1
        return [killer for killer, _ in found.most_common(_NEAR)]

    def survived(self, mutant: Mutant) -> bool:
        """Whether it was tried, and no test failed."""
        return mutant.name in self._killers and self._killers[mutant.name] is None

    def keep(self, mutant: Mutant, killer: str | None) -> None:
        self._killers[mutant.name], self._around[mutant.name] = killer, mutant.around
        with self._file.open("a") as file:
            file.write(json.dumps([mutant.name, killer, mutant.around]) + "\n")
