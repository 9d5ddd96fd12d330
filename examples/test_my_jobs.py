"""Tests of jobs under simulated time, with pytest and the fixture `nextfire_stack`.

    pip install 'nextfire[testing]' pytest
    pytest examples/test_my_jobs.py

The how-to is docs/guide/testing-jobs.md.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from nextfire.testing import HttpAnswer, ScriptRun, Stack


def test_the_report_runs_every_night(nextfire_stack: Stack) -> None:
    stack = nextfire_stack
    stack.script("report", lambda run: {"rows": 3})
    stack.put("nightly", {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "report"}})

    stack.advance(days=7)

    runs = stack.runs("nightly")
    assert [run.state for run in runs] == ["SUCCEEDED"] * 7
    assert stack.result(runs[0]) == {"rows": 3}


INVOICES = {
    "type": "CRON",
    "schedule": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "target": {"handler": "invoices"},
}


@pytest.mark.nextfire(start="2027-03-27T00:00:00+01:00")
def test_every_day_has_one_run_when_the_clocks_change(nextfire_stack: Stack) -> None:
    stack = nextfire_stack
    stack.script("invoices", lambda run: None)
    stack.put("invoices", INVOICES)

    stack.advance_to("2027-03-30T00:00:00+02:00")

    assert [f"{run.started_at:%d %H:%M} UTC" for run in stack.runs("invoices")] == [
        "27 01:30 UTC",  # 02:30 in winter
        "28 01:00 UTC",  # 03:00, when the clocks go forward over 02:30
        "29 00:30 UTC",  # 02:30 in summer
    ]


IMPORT = {
    "type": "MANUAL",
    "target": {"handler": "import"},
    "retryPolicy": {"maxAttempts": 3},
}


def test_no_page_is_imported_twice_when_a_worker_dies(nextfire_stack: Stack) -> None:
    stack = nextfire_stack
    imported = []

    def import_pages(run: ScriptRun) -> dict[str, int]:
        first = (run.checkpoint or 0) + 1
        for page in range(first, 5):
            imported.append(page)
            run.save_checkpoint(page)
            if page == 2 and run.attempt == 1:
                run.crash()
        return {"pages": len(imported)}

    stack.script("import", import_pages)
    stack.put("import", IMPORT)
    stack.run("import")

    stack.advance(minutes=10)

    [run] = stack.runs("import")
    assert [attempt.outcome for attempt in run.attempts or []] == ["WORKER_LOST", "SUCCEEDED"]
    assert imported == [1, 2, 3, 4]
    assert stack.result(run) == {"pages": 4}


def test_the_report_waits_for_both_parts_of_the_pipeline(nextfire_stack: Stack) -> None:
    stack = nextfire_stack
    stack.script("hello", lambda run: run.sleep(minutes=4 if run.job_id == "count" else 1))
    stack.apply(Path(__file__).with_name("pipeline.yaml"))

    stack.advance(days=1)

    [extract] = stack.runs("extract")
    [report] = stack.runs("report")
    assert report.started_at is not None
    assert report.started_at - extract.scheduled_at == timedelta(minutes=5)
    assert [node.job_id for node in stack.tree(report).items if node.critical] == [
        "extract",
        "count",
        "report",
    ]


def test_a_rejected_order_is_sent_again(nextfire_stack: Stack) -> None:
    stack = nextfire_stack
    answers = iter([HttpAnswer(500), HttpAnswer(200, {"order": 7})])
    stack.http("https://api.example.com/", lambda call: next(answers))
    call = {"url": "https://api.example.com/orders"}
    stack.put("order", {"type": "MANUAL", "target": {"pool": "calls", "http": call}})
    stack.run("order")

    stack.advance(minutes=1)

    [run] = stack.runs("order", state="SUCCEEDED")
    assert stack.result(run)["body"] == {"order": 7}
