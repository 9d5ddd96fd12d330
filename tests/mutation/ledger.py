"""Which test found each mutant out when it was last tried, kept from run to run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.mutation.source import Mutant

_NEAR = 20


class Ledger:
    """Kept in *file*, a line for each verdict, so that a run that is broken off is of use, too.

    The test that found a mutant out before is tried first, and has to do it again, unless a run is
    told to go on where others ended. Then those that found out others near it.
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
        """The id of the test that was red; None where none was, or where it was never tried."""
        return self._killers.get(mutant.name)

    def still(self, mutant: Mutant) -> str | None:
        """As `killer`; None also where the function around is not what it was then."""
        same = self._around.get(mutant.name) == mutant.around
        return self.killer(mutant) if same else None

    def near(self, mutant: Mutant) -> list[str]:
        """The tests that found others out: those of its function, then those of its file, the most
        frequent first.
        """
        place, _, _ = mutant.name.partition(": ")
        found: Counter[str] = Counter()
        for name, killer in self._killers.items():
            if killer is not None and name.startswith(f"{mutant.path} "):
                found[killer] += 1000 if name.startswith(f"{place}: ") else 1
        return [killer for killer, _ in found.most_common(_NEAR)]

    def survived(self, mutant: Mutant) -> bool:
        """Whether it was tried, and nothing noticed."""
        return mutant.name in self._killers and self._killers[mutant.name] is None

    def keep(self, mutant: Mutant, killer: str | None) -> None:
        self._killers[mutant.name], self._around[mutant.name] = killer, mutant.around
        with self._file.open("a") as file:
            file.write(json.dumps([mutant.name, killer, mutant.around]) + "\n")
