"""The order of the runs of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.run_graph import RunNode, in_order
from tests.builders import NOON, job_key


def graph(parents: Mapping[str, Sequence[str]]) -> dict[str, RunNode]:
    return {
        name: RunNode(RunKey(job_key(name), run_id("uid00001", NOON)), None, above)
        for name, above in parents.items()
    }


def test_each_job_follows_its_parents_and_otherwise_its_id() -> None:
    nodes = graph({"d": ["b", "c"], "c": ["a"], "b": ["a"], "a": [], "e": [], "f": ["gone", "e"]})

    assert in_order(nodes) == ["a", "e", "b", "c", "f", "d"]


def test_a_cycle_is_listed_after_what_is_before_it() -> None:
    nodes = graph({"a": [], "b": ["a", "c"], "c": ["b"], "d": ["c"]})

    assert in_order(nodes) == ["a", "b", "c", "d"]


def test_a_long_chain_takes_time_in_proportion_to_its_length() -> None:
    # With a search of all jobs for each job, this test does not end within its time limit.
    names = [f"j{n:04}" for n in range(2_000)]
    nodes = graph({name: names[max(n - 1, 0) : n] for n, name in enumerate(names)})

    assert in_order(nodes) == names
