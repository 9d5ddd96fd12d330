"""Joins: how the ends of several parents' runs are collected for one run of their child.

Each parent that ends adds a mark to the join of the child's run. Marks are added and never removed,
so a repeated addition changes nothing. A join of many parents has several items, so that few
parents write to the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from zlib import crc32

from nextfire.domain.edges import Edge
from nextfire.domain.instants import from_ms, to_ms
from nextfire.domain.trigger_rules import ParentState

ALONE = 64
"""Maximum number of parents whose marks are all in the first item, number 0."""
SPREAD = 16
"""Number of the other items. The id of a parent determines its item, so that parents that are added
or removed while a join is under way do not move the marks of the others."""

_LETTERS = {
    ParentState.SUCCEEDED: "S",
    ParentState.FAILED: "F",
    ParentState.SKIPPED: "K",
}
_INSTANT = 2  # of the parts of a mark
_BEST = "SFK"
"""A parent can end twice: a DEAD run is redriven, and a SKIPPED one starts after all."""


def mark(edge: Edge, state: ParentState, ended_at: datetime) -> str:
    """The mark of the parent of *edge*, whose run ended in *state*: ``extract:S``, or with the
    instant from which the child may run ``extract:S:1764000000000``.
    """
    text = f"{edge.job}:{_LETTERS[state]}"
    return f"{text}:{to_ms(ended_at + edge.delay)}" if edge.delay_sec else text


def ready_at(marks: Iterable[str]) -> datetime | None:
    """The latest instant of *marks*; None if they have none."""
    parts = [each.split(":") for each in marks]
    return max((from_ms(int(part[_INSTANT])) for part in parts if part[_INSTANT:]), default=None)


def has_second_end(marks: Iterable[str]) -> bool:
    """Whether a parent of *marks* ended twice, in different states."""
    states = {tuple(each.split(":")[:_INSTANT]) for each in marks}
    return len({parent for parent, _ in states}) < len(states)


def parents_of(marks: Iterable[str]) -> set[str]:
    """The parents of *marks*."""
    return {each.split(":")[0] for each in marks}


def failed_and_skipped(marks: Iterable[str]) -> set[str]:
    """The parents of *marks* that ended FAILED and SKIPPED, and did not succeed."""
    ends = {tuple(each.split(":")[:_INSTANT]) for each in marks}
    both = {name for name, _ in ends if {(name, "F"), (name, "K")} <= ends}
    return {name for name in both if (name, "S") not in ends}


def group_of(edges: Sequence[Edge], parent: str) -> int:
    """The number of the item for the mark of *parent*."""
    return 1 + crc32(parent.encode()) % SPREAD if edges[ALONE:] else 0


def edges_of(edges: Sequence[Edge], group: int) -> Sequence[Edge]:
    """Those of *edges* whose parents share the item *group*."""
    return [edge for edge in edges if group_of(edges, edge.job) == group]


def groups(edges: Sequence[Edge]) -> Sequence[int]:
    """The numbers of the items of a join. A job that had fewer parents when the join began has
    marks in the first one.
    """
    return range(1 + SPREAD if edges[ALONE:] else 1)


EVERY_GROUP = range(1 + SPREAD)
"""The items that a join can have, however many parents its job had."""


def states_of(edges: Iterable[Edge], marks: Iterable[str]) -> Mapping[str, ParentState]:
    """The state of each parent in *edges* according to *marks*. Marks of other parents, from before
    a change of the job, are ignored.
    """
    letters: dict[str, str] = {}
    for each in marks:
        parent, letter = each.split(":")[:_INSTANT]
        known = letters.get(parent)
        if letter in _BEST and (known is None or _BEST.index(letter) < _BEST.index(known)):
            letters[parent] = letter
    states = {letter: state for state, letter in _LETTERS.items()}
    return {
        edge.job: states[letters[edge.job]] if edge.job in letters else ParentState.WAITING
        for edge in edges
    }


def is_complete(edges: Sequence[Edge], marks: Iterable[str], group: int) -> bool:
    """Whether all parents in *edges* that share the item *group* have ended, according to its
    *marks*.
    """
    states = states_of(edges_of(edges, group), marks)
    return ParentState.WAITING not in states.values()
