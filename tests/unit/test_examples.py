"""The shipped examples run unchanged."""

from __future__ import annotations

import json
import runpy
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.client.pipelines.document import read
from nextfire.domain.definition import JobDefinition
from nextfire.domain.policies import MisfirePolicy, Overlap
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit
from nextfire.domain.recurrence import check
from nextfire.domain.schedule import UNTIMED, ScheduleType
from nextfire.domain.target import TargetKind
from nextfire.targets.aws.model import check_call
from nextfire.targets.http.addresses import AddressRules, check_url
from nextfire_cli.definition import definition
from nextfire_cli.job_files import read_documents
from tests.supervisors import Watch

EXAMPLES = Path(__file__).parents[2] / "examples"
PIPELINE = EXAMPLES / "pipeline.yaml"
JOBS = sorted(
    path.name
    for path in EXAMPLES.iterdir()
    if path.suffix in {".json", ".yaml"} and path != PIPELINE
)
NOW = datetime(2026, 5, 5, 10, tzinfo=UTC)


def job(name: str) -> JobDefinition:
    return JobDefinition.model_validate(definition(file=str(EXAMPLES / name)))


def run(handler: str, payload: object, attempt: int = 1, watch: Watch | None = None) -> ScriptExit:
    context = {"NEXTFIRE_ATTEMPT": str(attempt), "NEXTFIRE_SCHEDULED_AT": "2026-05-05T10:00:00Z"}
    source = (EXAMPLES / f"{handler}.py").read_bytes()
    call = ScriptCall(
        f"{handler}.py", source, json.dumps(payload), timedelta(seconds=20), "acme", context
    )
    return runner().run(call, watch or Watch())


@cache
def runner() -> ProcessScriptRunner:
    return ProcessScriptRunner()


@pytest.mark.parametrize("name", JOBS)
def test_job_file_can_be_scheduled_and_its_script_is_here(name: str) -> None:
    document = job(name)
    first = check(document.schedule_from(NOW))

    assert (first is None) == (document.type in UNTIMED)
    assert first is None or first > NOW
    target = document.target
    is_script = target.kind is TargetKind.SCRIPT
    assert not is_script or (EXAMPLES / f"{target.handler}.py").exists()
    if target.aws is not None:
        check_call(target.aws, allowed=["*"])
    if target.http is not None:
        check_url(target.http.url, AddressRules())


def test_there_is_a_job_file_of_each_type() -> None:
    assert {job(name).type.value for name in JOBS} == {kind.value for kind in ScheduleType}


def test_there_is_one_with_policies() -> None:
    report = job("report-cron.yaml")

    assert (report.misfire.policy, report.overlap) == (MisfirePolicy.RUN_LATEST, Overlap.SKIP)
    assert report.misfire.relevancy_window == timedelta(hours=1)
    assert isinstance(report.payload, dict)
    assert run("slow", report.payload | {"secondsPerStep": 0}).exit_code == 0


def test_the_pipeline_is_the_same_in_yaml_and_in_python() -> None:
    [document] = read_documents(str(PIPELINE))
    [in_yaml] = read(document)
    in_python = runpy.run_path(str(EXAMPLES / "pipeline.py"))["p"].pipeline()

    assert in_python.name == in_yaml.name
    assert in_python.jobs == in_yaml.jobs
    for each in in_yaml.jobs.values():
        assert (EXAMPLES / f"{each.target.handler}.py").exists()


def test_hello() -> None:
    end = run("hello", {"name": "demo-once"})

    assert (end.exit_code, end.stderr) == (0, "")
    assert end.stdout.splitlines() == [
        "Hello, demo-once!",
        'payload: {"name": "demo-once"}',
        "NEXTFIRE_ATTEMPT=1",
        "NEXTFIRE_SCHEDULED_AT=2026-05-05T10:00:00Z",
    ]


@pytest.mark.parametrize("date_range", ["2026-05-04", "yesterday"])
def test_invoice_report(date_range: str) -> None:
    payload = job("invoice-cron.yaml").payload
    assert isinstance(payload, dict)
    end = run("invoice_report", {**payload, "dateRange": date_range})

    assert (end.exit_code, end.stderr) == (0, "")
    assert end.stdout.splitlines() == [
        "Invoices of 2026-05-04 (acme): 2",
        "  Northwind                1,249.50 EUR",
        "  Baker & Sons               308.97 EUR",
        '{"day": "2026-05-04", "invoices": 2, "net": "1558.47", "tax": "296.11"}',
    ]


def test_invoice_report_names_what_is_missing() -> None:
    end = run("invoice_report", {"dateRange": "yesterday"})

    assert (end.exit_code, end.stderr) == (
        1,
        "The payload, or the environment, has no 'currency'.\n",
    )


def test_slow() -> None:
    end = run("slow", {"steps": 2, "secondsPerStep": 0.01})

    assert end == ScriptExit(0, "step 1 of 2 (50 %)\nstep 2 of 2 (100 %)\ndone\n", "")


def test_flaky_succeeds_on_its_third_attempt() -> None:
    payload = job("flaky-retry.yaml").payload

    assert [run("flaky", payload, attempt).exit_code for attempt in (1, 2, 3)] == [1, 1, 0]


def test_checkpointed_continues_where_the_attempt_before_it_failed() -> None:
    payload = job("checkpointed-retry.yaml").payload
    watch = Watch()
    first, second = (run("checkpointed", payload, attempt, watch) for attempt in (1, 2))

    assert (first.exit_code, first.result) == (1, None)
    assert first.stdout.splitlines() == ["page 1 of 4", "page 2 of 4"]
    assert second == ScriptExit(
        0,
        "continuing after page 2\npage 3 of 4\npage 4 of 4\n",
        "",
        result=b'{"pages":4,"rows":100}',
    )
