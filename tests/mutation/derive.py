"""Derives the mutants from the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tests.mutation import checks, conditions, ids, orders, pages, reads
from tests.mutation.source import Mutant, Product

FOLDERS = ("layers", "functions")
"""The folders to mutate."""


def derived(product: Product) -> list[Mutant]:
    """Every mutant of *product*, by place. Duplicates of several kinds are listed once."""
    found: dict[tuple[str, int, int, str], Mutant] = {}
    for mutant in _all(product):
        outcome = mutant.change.partition(" for ")[0] if " for " in mutant.change else ""
        key = outcome if outcome in {"True", "False"} else mutant.replacement
        found.setdefault((mutant.path, mutant.start, mutant.end, key), mutant)
    in_order = sorted(found.values(), key=lambda each: (each.path, each.start, each.change))
    return list(_with_unique_names(in_order))


def _with_unique_names(mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """Make the names of *mutants* unique: repeated ones in a function get a number."""
    seen: Counter[str] = Counter()
    for each in mutants:
        seen[each.name] += 1
        number = seen[each.name]
        yield each if number == 1 else replace(each, change=f"{each.change} (number {number})")


def _all(product: Product) -> Iterator[Mutant]:
    yield from conditions.mutants(product)
    yield from ids.mutants(product)
    yield from orders.mutants(product)
    yield from pages.mutants(product)
    yield from checks.mutants(product)
    yield from reads.mutants(product)
