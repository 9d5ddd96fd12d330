"""Documents as people read them."""

from datetime import timedelta

import pytest
from rich.console import Console, RenderableType

from nextfire_cli import render

RUN = {
    "executionId": "job_0123456789abcdef.20260524T100000000Z-0123456789abcdef",
    "jobId": "job_0123456789abcdef",
    "state": "SUCCEEDED",
    "scheduledAt": "2026-05-24T10:00:00Z",
    "dispatchedAt": "2026-05-24T10:00:00.031Z",
    "startedAt": "2026-05-24T10:00:00.120Z",
    "finishedAt": "2026-05-24T10:00:01.37Z",
    "attempt": 1,
    "exitCode": 0,
    "reason": "exit code 0",
    "worker": "w1",
    "stdout": "hello [bold]you[/]\n",
}
JOB = {
    "jobId": "job_0123456789abcdef",
    "name": "[red]nightly invoices of everybody",
    "state": "ACTIVE",
    "type": "CRON",
    "schedule": "*/5 3-23 * * 1-5",
    "timezone": "America/Los_Angeles",
    "target": {"pool": "batch-etl", "handler": "generate_invoices"},
    "nextFireAt": "2026-05-24T10:00:00Z",
}


def shown(view: RenderableType, width: int = 100) -> str:
    console = Console(width=width, record=True, file=None, quiet=False, highlight=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.031, "31 ms"),
        (0.9999, "999 ms"),
        (1, "1.00 s"),
        (12.345, "12.35 s"),
        (125, "2 m 05 s"),
        (3 * 3600 + 600, "3 h 10 m"),
        (86400 * 2 + 4 * 3600, "2 d 04 h"),
        (-0.002, "-2 ms"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert render.span(timedelta(seconds=seconds)) == text


def test_lateness_is_counted_from_the_scheduled_instant() -> None:
    assert render.late(RUN, "dispatchedAt") == "+31 ms"
    assert render.late(RUN | {"dispatchedAt": "2026-05-24T09:59:59.990Z"}, "dispatchedAt") == (
        "-10 ms"
    )
    assert not render.late({"scheduledAt": RUN["scheduledAt"]}, "dispatchedAt")
    assert not render.late(RUN | {"dispatch": 2}, "dispatchedAt")  # a retry is due later
    assert not render.late(RUN | {"attempt": 2}, "startedAt")  # as is what a lost worker left


def test_tables_fit_a_hundred_columns_and_keep_ids_whole() -> None:
    lost = RUN | {"state": "DEAD", "reason": "exit code 1: " + "no such table " * 9, "attempt": 100}
    for view in (render.executions([RUN, lost]), render.jobs([JOB])):
        text = shown(view)
        assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    text = shown(render.executions([RUN, lost]))
    assert text.count(str(RUN["executionId"])) == 2
    assert " ".join(text.split()).count("no such table") == 9
    assert "exit code 0" not in text
    assert str(JOB["jobId"]) in shown(render.jobs([JOB]))


def test_values_are_no_markup() -> None:
    assert "[red]nightly" in shown(render.jobs([JOB]))
    assert "[red]nightly" in shown(render.job(JOB))
    assert "hello [bold]you[/]" in shown(render.execution(RUN))


def test_an_execution_tells_its_times_its_attempts_and_its_output() -> None:
    failed = {
        "number": 1,
        "outcome": "FAILED",
        "startedAt": "2026-05-24T10:00:00.120Z",
        "finishedAt": "2026-05-24T10:00:00.420Z",
        "exitCode": 3,
        "reason": "exit code 3",
    }
    text = shown(
        render.execution(RUN | {"attempts": [failed, {"number": 2}], "stderr": "careful\n"})
    )
    for part in ("(+31 ms)", "(took 1.25 s)", "FAILED", "300 ms", "exit code 3", "careful"):
        assert part in text


def test_a_run_that_has_only_been_dispatched_can_be_shown() -> None:
    run = {key: RUN[key] for key in ("executionId", "jobId", "scheduledAt")} | {"state": "PENDING"}

    assert "PENDING" in shown(render.execution(run))
    assert "PENDING" in shown(render.executions([run]))
    assert "PENDING" in shown(render.execution_line(run))


RANGE = {
    "executionId": "job_0123456789abcdef.20260524T100000000Z-0123456789abcdef",
    "jobId": "job_0123456789abcdef",
    "state": "SKIPPED",
    "scheduledAt": "2026-05-24T10:00:00Z",
    "range": {"from": "2026-05-24T10:00:00Z", "to": "2026-05-24T15:59:00Z", "count": 360},
    "finishedAt": "2026-05-24T16:00:02Z",
    "reason": "noticed 21602 s late; misfire policy SKIP",
    "dispatch": 1,
    "attempt": 0,
    "attempts": [],
}


def test_a_range_record_tells_how_many_it_stands_for_and_why() -> None:
    for view in (
        render.execution(RANGE),
        render.executions([RANGE]),
        render.execution_line(RANGE),
    ):
        text = " ".join(shown(view, width=300).split())
        assert "SKIPPED" in text
        assert "360 occurrences, to 2026-05-24T15:59:00Z" in text
        assert "noticed 21602 s late; misfire policy SKIP" in text


def test_a_run_tells_why_it_was_dispatched() -> None:
    reason = "noticed 61 s late; misfire policy RUN_LATEST: the latest"

    assert reason in shown(render.execution(RUN | {"dispatchReason": reason}))


def test_a_paused_job_tells_since_when_and_why() -> None:
    job = JOB | {"state": "PAUSED", "pausedAt": "2026-05-24T09:00:00Z", "pauseReason": "[red]"}
    del job["nextFireAt"]

    assert "2026-05-24T09:00:00Z  ([red])" in shown(render.job(job))
    assert "[red]" in shown(render.jobs([job]))
    del job["pauseReason"]
    assert "2026-05-24T09:00:00Z" in shown(render.job(job))
    assert "PAUSED" in shown(render.jobs([job]))


def test_policies_of_a_job_are_shown() -> None:
    misfire = {"policy": "RUN_LATEST", "relevancyWindowSec": 90}
    text = shown(render.job(JOB | {"misfire": misfire, "overlap": "QUEUE"}))

    for part in ("RUN_LATEST", "more than 90 s late", "QUEUE"):
        assert part in text


def test_what_cannot_be_read_is_shown_with_its_reason() -> None:
    job = {"jobId": "a", "state": "UNREADABLE", "reason": "job does not decode: [x]"}
    run = {"executionId": "a.1", "jobId": "a", "state": "UNREADABLE", "reason": "does not decode"}

    for view in (render.jobs([JOB, job]), render.job(job)):
        assert "UNREADABLE" in shown(view)
    assert "job does not decode: [x]" in shown(render.jobs([job]))
    for view in (render.executions([run]), render.execution(run), render.execution_line(run)):
        assert "UNREADABLE" in shown(view)
        assert "does not decode" in shown(view)


def test_empty_lists_say_what_to_do() -> None:
    assert "nextfire jobs create" in shown(render.jobs([]))
    assert "nextfire scripts push" in shown(render.scripts([]))
    assert "--follow" in shown(render.executions([]))
