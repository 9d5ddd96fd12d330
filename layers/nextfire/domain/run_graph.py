"""The graph of the runs of a sequence that share a logical time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nextfire.domain.edges import TriggerRule
from nextfire.domain.ids import RunKey
from nextfire.domain.run import Run


@dataclass(frozen=True, slots=True)
class RunNode:
    """A job of the sequence at one logical time: its run key, its record or None if it has none
    yet, its parents, and the trigger rule of its job. `setups`: the parents whose run must have
    succeeded. `critical`: on the critical path.
    `redefined`: what the job does has changed since the latest attempt of the run began.
    """

    key: RunKey
    run: Run | None
    parents: Sequence[str]
    critical: bool = False
    rule: TriggerRule = TriggerRule.ALL_SUCCEEDED
    redefined: bool = False
    setups: frozenset[str] = frozenset()


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
    left, done = sorted(nodes), list[str]()
    while left:
        ready = [name for name in left if not {*nodes[name].parents} & {*left}]
        done += ready or left  # a cycle cannot be stored, but two changes can race
        left = [name for name in left if name not in {*done}]
    return done


def _latest(ended: Mapping[str, datetime], names: Sequence[str]) -> str | None:
    known = sorted(name for name in names if name in ended)
    return max(known, key=lambda name: ended[name], default=None)
