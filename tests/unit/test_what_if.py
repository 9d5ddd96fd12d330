"""What jobs would do if some of them failed: as the scheduler decides, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import nextfire
from nextfire import PipelineError
from nextfire.client.pipelines.document import read
from nextfire.client.pipelines.what_if import foresee
from nextfire.domain.edges import TriggerRule
from nextfire.domain.message import decode_message
from nextfire.domain.trigger_rules import ParentState, RuleAction
from nextfire_cli.main import app
from tests.unit.sequencing import ONE_ATTEMPT, after
from tests.world import World

RUN, SKIP = RuleAction.RUN, RuleAction.SKIP


def job(job_id: str, *parents: str, rule: str = "ALL_SUCCEEDED") -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "CRON", "schedule": "0 3 * * *"}
    if parents:
        edges = [{"job": parent} for parent in parents]
        kind = {"type": "AFTER", "after": edges, "triggerRule": rule}
    return {"jobId": job_id, "target": {"handler": "hello"}, **kind}


ETL = {
    "pipeline": "etl",
    "jobs": [
        job("report", "load", "check"),
        job("extract"),
        job("load", "extract"),
        job("check", "extract"),
        job("alarm", "load", "check", rule="ANY_FAILED"),
        job("cleanup", "report", rule="ALL_DONE"),
    ],
}


def test_each_job_has_an_outcome_and_a_reason() -> None:
    found = foresee(read(ETL), ["load"]).jobs

    assert [*found] == ["extract", "check", "load", "alarm", "report", "cleanup"]
    shown = {name: (each.action, each.ends.value, each.reason) for name, each in found.items()}
    assert shown == {
        "extract": (RUN, "SUCCEEDED", "starts by itself: CRON"),
        "check": (RUN, "SUCCEEDED", "ALL_SUCCEEDED: extract SUCCEEDED"),
        "load": (RUN, "FAILED", "ALL_SUCCEEDED: extract SUCCEEDED"),
        "alarm": (RUN, "SUCCEEDED", "ANY_FAILED: load FAILED"),
        "report": (SKIP, "SKIPPED", "trigger rule ALL_SUCCEEDED: load FAILED"),
        "cleanup": (RUN, "SUCCEEDED", "ALL_DONE: done"),
    }


def test_a_job_that_does_not_start_does_not_fail() -> None:
    found = foresee(read(ETL), ["extract", "load"]).jobs

    assert found["load"].ends is ParentState.SKIPPED
    assert found["alarm"].reason == "trigger rule ANY_FAILED: load, check SKIPPED"


def test_parents_outside_the_pipeline_succeed_unless_they_fail() -> None:
    pipelines = read({"pipeline": "p", "jobs": [job("a", "other"), job("b", "a")]})

    assert [each.action for each in foresee(pipelines, []).jobs.values()] == [RUN, RUN]
    assert [each.action for each in foresee(pipelines, ["other"]).jobs.values()] == [SKIP, SKIP]


def test_a_job_with_a_schedule_that_waits_for_a_success_is_skipped_at_its_timeout() -> None:
    with nextfire.pipeline("p") as p:
        a = p.job("a", type="CRON", schedule="0 * * * *", target={"handler": "hello"})
        daily: dict[str, Any] = {"type": "CRON", "schedule": "0 0 * * *"}
        b = p.job("b", target={"handler": "hello"}, **daily).after(a, which="all")
        p.job("c", target={"handler": "hello"}, **daily).after(a, which="latest", within_sec=60)
        p.job("d", target={"handler": "hello"}, trigger_rule="ANY_FAILED").after(b)

    found = {name: (each.action, each.reason) for name, each in p.what_if(a).jobs.items()}

    assert found["b"] == (SKIP, "trigger rule ALL_SUCCEEDED: a FAILED")
    assert found["c"] == (SKIP, "joinTimeoutSec is 86400 s; missing: a")
    assert found["d"] == (SKIP, "trigger rule ANY_FAILED: b SKIPPED")
    assert [each.action for each in p.what_if().jobs.values()] == [RUN, RUN, RUN, SKIP]


def test_an_unknown_job_is_named() -> None:
    with pytest.raises(PipelineError, match=r"fail: not a job .*\(got 'laod'\). Available: alarm"):
        foresee(read(ETL), ["laod"])


def test_a_pipeline_in_python_answers_too() -> None:
    with nextfire.pipeline("p") as p:
        a = p.job("a", type="CRON", schedule="0 3 * * *", target={"handler": "hello"})
        b = p.job("b", target={"handler": "hello"})
        a >> b

    assert p.what_if(a).jobs["b"].action is SKIP
    assert p.what_if("b").document()["items"][1] == {
        "jobId": "b",
        "action": "RUN",
        "ends": "FAILED",
        "reason": "ALL_SUCCEEDED: a SUCCEEDED",
    }


def test_the_command_reads_a_file_without_an_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("etl.json").write_text(json.dumps(ETL))

    def call(*flags: str) -> Any:
        return CliRunner().invoke(app, ["plan", "what-if", "-f", "etl.json", *flags])

    shown, parsed = call("--fail", "load, check"), call("--fail", "load", "--json")

    assert (shown.exit_code, parsed.exit_code) == (0, 0)
    assert "report   SKIP    SKIPPED    trigger rule ALL_SUCCEEDED: load, check FAILED" in (
        shown.stdout
    )
    assert json.loads(parsed.stdout) == foresee(read(ETL), ["load"]).document()
    assert call("--fail", "load", "--pipeline", "etl").exit_code == 2
    unknown = call("--fail", "laod")
    assert unknown.exit_code == 2
    assert "Available: alarm" in unknown.stderr


# As the scheduler decides

Graph = list[tuple[list[int], TriggerRule]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Jobs with parents among the jobs before them; the first has none."""
    graph: Graph = [([], TriggerRule.ALL_SUCCEEDED)]
    for number in range(1, draw(st.integers(2, 7))):
        parents = draw(st.sets(st.integers(0, number - 1), min_size=1, max_size=3))
        graph.append((sorted(parents), draw(st.sampled_from(TriggerRule))))
    return graph


@given(graph=graphs(), numbers=st.sets(st.integers(0, 6)))
@settings(max_examples=50, deadline=None)
def test_the_scheduler_does_the_same(graph: Graph, numbers: set[int]) -> None:
    world = World("11:58:30")
    world.tick()
    names = [f"j{number}" for number in range(len(graph))]
    failing = {names[number] for number in numbers if number < len(names)}
    jobs = [
        world.register(name, **_fields(names, parents, rule), **ONE_ATTEMPT)
        for name, (parents, rule) in zip(names, graph, strict=True)
    ]
    world.tick_at("12:00")
    while (delivery := world.worker().receive()) is not None:
        fails = decode_message(delivery.body).job_id in failing
        world.script(exit_code=1 if fails else 0)
        world.worker().handle(delivery)

    documents = [{"jobId": each.key.job_id, **each.definition.document()} for each in jobs]
    found = foresee(read({"jobs": documents}), failing).jobs
    for each in jobs:
        run = world.run(each, "12:00")
        assert found[each.key.job_id].ends is ParentState.of(run.state)
        if found[each.key.job_id].action is SKIP:
            assert run.reason is not None
            assert run.reason.startswith("trigger rule ")


def _fields(names: list[str], parents: list[int], rule: TriggerRule) -> dict[str, Any]:
    if not parents:
        return {}
    return after(*(names[parent] for parent in parents), triggerRule=rule.value)
