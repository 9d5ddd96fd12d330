"""`nextfire runs tree`: states, durations, the critical path; it follows until all has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nextfire_cli import run_tree
from tests.unit.cli.answers import ID
from tests.unit.cli.conftest import Api, Call

CHAIN = f"GET /v1/executions/{ID}/chain"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tree, "_POLL", 0)


def node(job_id: str, state: str, *parents: str, **fields: Any) -> dict[str, Any]:
    known = {"jobId": job_id, "executionId": f"{job_id}@20260524T100000000Z-u", "state": state}
    return known | {"after": [*parents], "critical": False} | fields


def tree(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"scheduledAt": "2026-05-24T10:00:00Z", "items": [*nodes]}


def took(seconds: int) -> dict[str, Any]:
    ended = {"startedAt": "2026-05-24T10:00:00Z", "finishedAt": f"2026-05-24T10:00:{seconds:02}Z"}
    return ended | {"attempt": 1}


def test_a_sequence_is_shown_with_states_durations_and_its_critical_path(
    call: Call, api: Api
) -> None:
    api.routes[CHAIN] = [
        tree(
            node("extract", "SUCCEEDED", critical=True, **took(5)),
            node("quick", "SUCCEEDED", "extract", **took(1)),
            node("slow", "DEAD", "extract", critical=True, reason="exit code 1", **took(40)),
            node("report", "SKIPPED", "quick", "slow", reason="trigger rule: slow FAILED"),
        )
    ]

    lines = call("runs", "tree", ID).stdout.splitlines()

    assert [" ".join(line.split()) for line in lines] == [
        "JOB STATE TOOK TRY EXECUTION",
        "extract SUCCEEDED 5.00 s 1 * extract@20260524T100000000Z-u",
        "quick SUCCEEDED 1.00 s 1 quick@20260524T100000000Z-u",
        "report (also after slow) SKIPPED report@20260524T100000000Z-u",
        "trigger rule: slow FAILED",
        "slow DEAD 40.00 s 1 * slow@20260524T100000000Z-u",
        "exit code 1",
    ]
    assert [len(line) - len(line.lstrip()) for line in lines[1:4]] == [0, 2, 4]


def test_parents_that_the_response_leaves_out_are_counted(call: Call, api: Api) -> None:
    join = node("join", "WAITING", "a", "b", moreParents=1_198)
    alone = node("alone", "WAITING", "a", moreParents=1)
    api.routes[CHAIN] = [tree(node("a", "SUCCEEDED"), node("b", "SUCCEEDED"), join, alone)]

    shown = call("runs", "tree", ID).stdout

    assert "join (also after b, 1,198 more)" in shown
    assert "alone (also after 1 more)" in shown


@pytest.mark.parametrize("as_json", [True, False])
def test_it_follows_until_the_last_run_has_ended(call: Call, api: Api, *, as_json: bool) -> None:
    done = node("a", "SUCCEEDED", **took(5))
    api.routes[CHAIN] = [
        tree(node("a", "RUNNING"), node("b", "WAITING", "a")),
        tree(done, node("b", "WAITING", "a")),  # the run is about to start
        tree(done, node("b", "PENDING", "a")),
        tree(done, node("b", "DEAD", "a"), node("c", "WAITING", "b")),
        tree(done, node("b", "DEAD", "a"), node("c", "SKIPPED", "b")),
    ]

    result = call("runs", "tree", ID, "--follow", *(["--json"] if as_json else []))

    assert len(api.requests) == 5
    assert "SKIPPED" in result.stdout
    assert result.stdout.endswith("\n")
    if as_json:
        assert [each["state"] for each in json.loads(result.stdout)["items"]][-1] == "SKIPPED"


@pytest.mark.parametrize("parent", ["SKIPPED", "WAITING"])
def test_it_does_not_wait_for_a_run_that_may_never_come(call: Call, api: Api, parent: str) -> None:
    """A watcher skipped the parent, or the parent itself waits for other jobs."""
    api.routes[CHAIN] = [tree(node("a", parent), node("b", "WAITING", "a"))]

    call("runs", "tree", ID, "--follow")

    assert len(api.requests) == 1
