"""Mutants that change nothing, each with the reason. They are not tried.

An entry is told by the file, the function and what is changed, whatever the line; one that no
mutant is like any more is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.mutation.source import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`change`: as the table shows it, or the head of it before a `…`."""

    path: str
    where: str
    change: str
    reason: str

    def is_like(self, mutant: Mutant) -> bool:
        if (mutant.path, mutant.where) != (self.path, self.where):
            return False
        head, more, _ = self.change.partition("…")
        return mutant.change.startswith(head) if more else mutant.change == self.change


EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        "layers/nextfire/adapters/run_store.py",
        "DynamoDbRunStore.stop",
        "False for there.state is RunState.CANCELLED",
        "That the write is ours ends the loop here, and a CANCELLED run ends it, too.",
    ),
    *(
        Equivalent(
            "layers/nextfire/adapters/packages.py",
            "_aside",
            f"{change} {{path.name}} in …",
            "The other part is unlike all others; this one is for people who look there.",
        )
        for change in ("without", "the same for all:")
    ),
)


def sorted_out(
    mutants: Iterable[Mutant], known: Sequence[Equivalent] = EQUIVALENTS
) -> tuple[list[Mutant], list[Mutant], list[Equivalent]]:
    """The mutants to try, the equivalent ones, and the entries that no mutant is like."""
    to_try: list[Mutant] = []
    equivalent: list[Mutant] = []
    unused = list(known)
    for mutant in mutants:
        alike = [each for each in known if each.is_like(mutant)]
        (equivalent if alike else to_try).append(mutant)
        unused = [each for each in unused if each not in alike]
    return to_try, equivalent, unused
