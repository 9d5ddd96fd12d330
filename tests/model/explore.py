"""Explores a model completely: every state that any order of its steps can reach."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)

STUCK = "every state at rest is accounted for"
LOST = "from every state, an accounted rest is reachable without further faults"


class Step(NamedTuple, Generic[S]):
    """A possible next step. `fault`: nothing may depend on this step."""

    name: str
    to: S
    fault: bool = False


@dataclass(frozen=True)
class Model(Generic[S]):
    """A protocol, small enough to be explored completely.

    `steps`: the possible next steps of a state. `always`: properties of each state. `changes`:
    properties of each step (the state before, its name, the state after). `accounted`: whether a
    state is an acceptable rest.
    """

    name: str
    initial: S
    steps: Callable[[S], Iterable[Step[S]]]
    always: Mapping[str, Callable[[S], bool]]
    changes: Mapping[str, Callable[[S, str, S], bool]]
    accounted: Callable[[S], bool]

    @property
    def properties(self) -> list[str]:
        return [*self.always, *self.changes, STUCK, LOST]

    def without(self, name: str) -> Model[S]:
        """The same model without one property."""
        return replace(
            self,
            always={each: holds for each, holds in self.always.items() if each != name},
            changes={each: allowed for each, allowed in self.changes.items() if each != name},
        )


@dataclass(frozen=True)
class Violation:
    """A violated property, and a shortest path to the violation."""

    property: str
    trace: list[str]

    def __str__(self) -> str:
        steps = "\n".join(f"  {number}. {name}" for number, name in enumerate(self.trace, 1))
        return f"Broken: {self.property}\n{steps}"


@dataclass(frozen=True)
class Explored:
    """The size of a model, and the first violation, if any. `depth`: number of steps to the
    farthest state.
    """

    states: int
    transitions: int
    depth: int
    violation: Violation | None


class TooLargeError(Exception):
    """A model has more states than allowed."""


@dataclass
class _Graph(Generic[S]):
    """The states found, by number, in the order of their distance from the first."""

    states: list[S] = field(default_factory=list)
    numbers: dict[S, int] = field(default_factory=dict)
    parents: array[int] = field(default_factory=lambda: array("q"))
    names: list[str] = field(default_factory=list)
    depths: array[int] = field(default_factory=lambda: array("q"))
    sources: array[int] = field(default_factory=lambda: array("q"))
    targets: array[int] = field(default_factory=lambda: array("q"))
    transitions: int = 0

    def add(self, state: S, parent: int, name: str) -> int:
        number = self.numbers.get(state)
        if number is None:
            number = self.numbers[state] = len(self.states)
            self.states.append(state)
            self.parents.append(parent)
            self.names.append(name)
            self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        return number

    def trace(self, number: int) -> list[str]:
        names: list[str] = []
        while self.parents[number] >= 0:
            names.append(self.names[number])
            number = self.parents[number]
        return names[::-1]


def explore(model: Model[S], *, at_most: int = 5_000_000) -> Explored:
    """Explore *model* breadth first, up to the first violation.

    Raises:
        TooLargeError: It has over *at_most* states.
    """
    graph: _Graph[S] = _Graph()
    graph.add(model.initial, -1, "")
    violation: Violation | None = None
    at = 0
    while at < len(graph.states) and violation is None:
        violation = _expand(model, graph, at)
        at += 1
        if len(graph.states) > at_most:
            raise TooLargeError(f"{model.name}: over {at_most} states")
    if violation is None:
        violation = _find_state_without_rest(model, graph)
    return Explored(len(graph.states), graph.transitions, graph.depths[-1], violation)


def _expand(model: Model[S], graph: _Graph[S], at: int) -> Violation | None:
    before = graph.states[at]
    for name, holds in model.always.items():
        if not holds(before):
            return Violation(name, graph.trace(at))
    rests = True
    for step in model.steps(before):
        if step.to == before:
            continue
        graph.transitions += 1
        for name, allowed in model.changes.items():
            if not allowed(before, step.name, step.to):
                return Violation(name, [*graph.trace(at), step.name])
        number = graph.add(step.to, at, step.name)
        if not step.fault:
            rests = False
            graph.sources.append(at)
            graph.targets.append(number)
    if rests and not model.accounted(before):
        return Violation(STUCK, graph.trace(at))
    return None


def _find_state_without_rest(model: Model[S], graph: _Graph[S]) -> Violation | None:
    """Find the nearest state from which only faults lead to an acceptable rest."""
    into: list[list[int]] = [[] for _ in graph.states]
    for source, target in zip(graph.sources, graph.targets, strict=True):
        into[target].append(source)
    reached = bytearray(len(graph.states))
    todo = [number for number, state in enumerate(graph.states) if model.accounted(state)]
    for number in todo:
        reached[number] = True
    while todo:
        for source in into[todo.pop()]:
            if not reached[source]:
                reached[source] = True
                todo.append(source)
    nearest = reached.find(0)
    return None if nearest < 0 else Violation(LOST, graph.trace(nearest))
