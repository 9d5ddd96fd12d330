"""The graph of the runs of a sequence that share a logical time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from nextfire.dataclass import dataclass
from nextfire.domain.edges import TriggerRule
from nextfire.domain.ids import RunKey
from nextfire.domain.run import Run

MAX_PARENTS_SHOWN = 25_000
"""Maximum number of parents that all nodes of a sequence are shown with. A job id takes up to 69
bytes of a response.
"""
MAX_REASONS_SHOWN = 200_000
"""Maximum number of characters of the reasons that all nodes are shown with. Each takes up to 14
bytes of a response.
"""


HAS_NO_RUN = "has no run: its job was created after the runs of its parents"
"""Why a node that was created late does not change."""


@dataclass(frozen=True, slots=True)
class RunNode:
    """A job of the sequence at one logical time: its run key, its record or None if it has none
    yet, its parents, and the trigger rule of its job. `setups`: the parents whose run must have
    succeeded. `critical`: on the critical path.
    `redefined`: what the job does has changed since the latest attempt of the run began.
    `created_late`: it has no record, because its job was created after its parents' runs had ended.
    """

    key: RunKey
    run: Run | None
    parents: Sequence[str]
    critical: bool = False
    rule: TriggerRule = TriggerRule.ALL_SUCCEEDED
    redefined: bool = False
    setups: frozenset[str] = frozenset()
    created_late: bool = False


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """Maximum number of parents, and of characters of the reason, that a node is shown with. None:
    all.
    """

    parents: int | None
    reason: int | None

    @classmethod
    def of(cls, nodes: Sequence[RunNode]) -> NodeLimit:
        """The limit of each of *nodes*, so that together they are below the 6 MB limit of a
        function's response.
        """
        reasons = sum(len(node.run.reason or "") for node in nodes if node.run is not None)
        parents = sum(len(node.parents) for node in nodes)
        return cls(
            MAX_PARENTS_SHOWN // len(nodes) if parents > MAX_PARENTS_SHOWN else None,
            MAX_REASONS_SHOWN // len(nodes) if reasons > MAX_REASONS_SHOWN else None,
        )


def critical_path(nodes: Mapping[str, RunNode]) -> frozenset[str]:
    """Return the jobs, among *nodes* by job id, that determined when the last run ended: from that
    run back, at each step, to the parent that ended last. Empty before any run has ended.
    """
    ended = {
        name: node.run.finished_at
        for name, node in nodes.items()
        if node.run is not None and node.run.finished_at is not None and node.run.attempts
    }
    path: set[str] = set()
    name = _latest(ended, list(nodes))
    while name is not None and name not in path:
        path.add(name)
        name = _latest(ended, nodes[name].parents)
    return frozenset(path)


def in_order(nodes: Mapping[str, RunNode]) -> list[str]:
    """Return the job ids of *nodes*: each after its parents, otherwise by id."""
    waits_for = {name: {*node.parents} & nodes.keys() for name, node in nodes.items()}
    children: dict[str, list[str]] = defaultdict(list)
    for name, parents in waits_for.items():
        for parent in parents:
            children[parent].append(name)
    ready, done = sorted(name for name, parents in waits_for.items() if not parents), list[str]()
    while waits_for:
        ready = ready or sorted(waits_for)  # a cycle: two changes that race can store one
        done += ready
        following = {child for name in ready for child in children[name]}
        for name in ready:
            del waits_for[name]
            for child in children[name]:
                waits_for.get(child, set()).discard(name)
        ready = sorted(name for name in following if waits_for.get(name) == set())
    return done


def _latest(ended: Mapping[str, datetime], names: Sequence[str]) -> str | None:
    known = sorted(name for name in names if name in ended)
    return max(known, key=lambda name: ended[name], default=None)
