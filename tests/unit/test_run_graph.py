"""The order of the runs of a sequence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from functions.api.respond import respond
from nextfire.domain.ids import RunKey, run_id
from nextfire.domain.run import Run
from nextfire.domain.run_graph import RunNode, in_order
from nextfire.responses.executions import SequenceResponse
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


def test_a_dense_graph_is_shown_in_one_response_of_a_function() -> None:
    """Lambda returns up to 6 MB, with the quotes and backslashes of the body escaped."""
    parents = [f"{n:064}" for n in range(1_000)]
    above = {f"c{n:063}": parents for n in range(1_000)} | {name: [] for name in parents}
    nodes = [
        replace(
            node, run=Run.skipped(node.key, f"{n:04}" + "\U0001f525" * 496, NOON), critical=True
        )
        for n, node in enumerate(graph(above).values())
    ]

    body = respond(SequenceResponse.of(nodes, NOON)).body

    assert len(json.dumps({"statusCode": 200, "body": body})) < 6 * 1024 * 1024
    shown = SequenceResponse(json.loads(body or "")).items
    assert [len(each.after) for each in shown] == [12] * 1_000 + [0] * 1_000
    assert {each.more_parents for each in shown[:1_000]} == {988}
    assert shown[-1].more_parents is None
    assert [shown[n].reason for n in (0, 1)] == [
        f"000{n}" + "\U0001f525" * 95 + "…" for n in (0, 1)
    ]


def test_a_wide_graph_is_shown_with_all_parents() -> None:
    parents = [f"{n}" for n in range(1_000)]
    join = graph({"join": parents})["join"]
    nodes = [replace(join, run=Run.skipped(join.key, "x" * 500, NOON))]

    [shown] = SequenceResponse.of(nodes, NOON).document["items"]

    assert shown["after"] == parents
    assert "moreParents" not in shown
    assert shown["reason"] == "x" * 500
