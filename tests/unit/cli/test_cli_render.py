"""How the CLI renders documents for people."""

from datetime import timedelta

import pytest

from nextfire_cli import render
from tests.unit.cli.rendered import JOB, RUN, shown


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
    assert not render.late(RUN | {"attempt": 2}, "startedAt")  # a retry is due later


def test_a_run_that_waited_without_an_attempt_is_late() -> None:
    waited = RUN | {"dispatch": 2, "dispatchedAt": "2026-05-24T10:00:11.541Z"}
    assert render.late(waited, "dispatchedAt") == "+11.54 s"


def test_a_run_that_was_deferred_after_an_attempt_is_not_late() -> None:
    deferred = {"number": 1, "outcome": "DEFERRED", "startedAt": "2026-05-24T10:00:00.120Z"}
    again = {"dispatch": 2, "startedAt": "2026-05-24T10:00:10.120Z", "attempts": [deferred]}
    assert not render.late(RUN | again, "startedAt")
    succeeded = deferred | {"outcome": "SUCCEEDED", "startedAt": again["startedAt"]}
    assert not render.late(RUN | again | {"attempts": [deferred, succeeded]}, "startedAt")


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


def test_an_execution_shows_its_times_its_attempts_and_its_output() -> None:
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
    "reason": "21602 s late; misfire policy SKIP",
    "dispatch": 1,
    "attempt": 0,
    "attempts": [],
}


def test_a_range_record_shows_how_many_it_covers_and_why() -> None:
    for view in (
        render.execution(RANGE),
        render.executions([RANGE]),
        render.execution_line(RANGE),
    ):
        text = " ".join(shown(view, width=300).split())
        assert "SKIPPED" in text
        assert "360 occurrences, to 2026-05-24T15:59:00Z" in text
        assert "21602 s late; misfire policy SKIP" in text


def test_a_run_shows_why_it_was_dispatched() -> None:
    reason = "61 s late; misfire policy RUN_LATEST: the latest"

    assert reason in shown(render.execution(RUN | {"dispatchReason": reason}))


def test_a_run_on_request_shows_the_reason_of_the_request_after_its_end() -> None:
    asked = RUN | {"requestReason": "it was wrong", "reason": "exit code 0"}

    assert "Requested   it was wrong" in shown(render.execution(asked))
    assert shown(render.execution(asked | {"reason": "it was wrong"})).count("was wrong") == 1


def test_a_paused_job_shows_since_when_and_why() -> None:
    job = JOB | {"state": "PAUSED", "pausedAt": "2026-05-24T09:00:00Z", "pauseReason": "[red]"}
    job["pausedBy"] = "3f9c0a77d1e2b456"
    del job["nextFireAt"]

    assert "2026-05-24T09:00:00Z  ([red])" in shown(render.job(job))
    assert "Paused by  3f9c0a77d1e2b456" in shown(render.job(job))
    assert "[red]" in shown(render.jobs([job]))
    del job["pauseReason"]
    assert "2026-05-24T09:00:00Z" in shown(render.job(job))
    assert "PAUSED" in shown(render.jobs([job]))


def test_a_job_shows_when_it_is_resumed_and_what_it_will_skip() -> None:
    job = JOB | {"state": "PAUSED", "resumesAt": "2027-01-02T06:00:00Z"}
    job["skips"] = ["2027-01-03T10:00:00Z", "2027-01-04T10:00:00Z"]
    text = shown(render.job(job))

    assert "Resumes        2027-01-02T06:00:00Z" in text
    assert "To be skipped  2027-01-03T10:00:00Z, 2027-01-04T10:00:00Z" in text
    assert "To be skipped" not in shown(render.job(JOB))


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


def test_jobs_without_names_have_no_column_for_them() -> None:
    unnamed = {key: value for key, value in JOB.items() if key != "name"}

    assert "NAME" not in shown(render.jobs([unnamed]))
    assert "NAME" in shown(render.jobs([unnamed, JOB]))
    assert "NAME" in shown(render.jobs([unnamed], wide=True), width=300)


def test_empty_lists_say_what_to_do() -> None:
    assert "nextfire jobs create" in shown(render.jobs([]))
    assert shown(render.jobs([], narrowed=True)) == "No job matches.\n"
    assert "nextfire scripts push" in shown(render.scripts([]))
    assert shown(render.executions([])) == "No runs on record.\n"
    assert shown(render.executions([], narrowed=True)) == "No run matches.\n"


@pytest.mark.parametrize(
    ("job", "listed", "got"),
    [
        ({}, "due at 2026-05-24T10:00:00Z; --follow", "2026-05-24T10:00:00Z"),
        ({"nextFireAt": None}, "due already; its record comes when an executor", "was due already"),
        (
            {"nextFireAt": None, "target": {"http": {"url": "https://a.example.com"}}},
            "takes it and its destination is not paused or down (nextfire endpoints list)",
            "was due already",
        ),
        (
            {"nextFireAt": None, "state": "COMPLETED"},
            "No occurrence is left",
            "no occurrence is left",
        ),
        ({"nextFireAt": None, "state": "CANCELLED"}, "never runs again", "CANCELLED"),
        ({"nextFireAt": None, "type": "MANUAL"}, "has no schedule", "MANUAL"),
        (
            {"nextFireAt": None, "state": "PAUSED", "pausedAt": "2026-05-24T09:00:00Z"},
            "paused since 2026-05-24T09:00:00Z. Resume it: nextfire jobs resume job_0123",
            "PAUSED",
        ),
    ],
)
def test_a_job_without_runs_shows_why(job: dict[str, str | None], listed: str, got: str) -> None:
    document = {name: value for name, value in (JOB | job).items() if value is not None}

    assert listed in shown(render.executions([], document), width=300)
    assert got in shown(render.job(document))


def test_an_occurrence_to_be_skipped_is_not_among_the_next_runs() -> None:
    first, *later = (f"2026-05-24T1{hour}:00:00Z" for hour in range(3))
    coming = [{"at": first, "skipped": True}, *({"at": at} for at in later)]
    job = JOB | {"nextFireAt": later[0], "skips": [first], "upcoming": coming}

    text = shown(render.job(job))

    assert f"Next run       {later[0]}" in text
    assert f"Then           {later[1]}  " in text


def test_what_is_upcoming_shows_its_execution_ids_in_eighty_columns() -> None:
    first = {
        "executionId": RUN["executionId"],
        "at": "2026-05-24T10:00:00Z",
        "local": "2026-05-24T10:00:00",
        "offset": "+00:00",
    }
    second = first | {"note": "2026-05-24T10:00 occurs twice: fires the first time only"}

    assert "to be skipped" in shown(render.upcoming([first | {"skipped": True}]), width=80)
    text = shown(render.upcoming([first, second]), width=80)
    assert "skipped" not in text

    assert "EXECUTION" in text
    assert "LOCAL" not in text
    assert text.count(str(RUN["executionId"])) == 2
    assert "occurs twice" in text
    assert "LOCAL" in shown(render.upcoming([first | {"offset": "+02:00"}]), width=120)


def test_a_jobs_retries_and_variables() -> None:
    policy = {
        "maxAttempts": 5,
        "backoff": "LINEAR",
        "initialDelayMs": 30_000,
        "maxDelayMs": 3_600_000,
        "jitter": "FULL",
        "retryOn": {"states": ["FAILED"], "exitCodes": [75, -9]},
    }
    env = {"A": "1", "B": {"secret": "b", "key": "c"}, "C": {"parameter": "c"}}
    target = {"pool": "default", "handler": "h", "env": env}

    text = shown(render.job(JOB | {"retryPolicy": policy, "target": target}), width=200)

    assert (
        "5 at most, LINEAR after 30.00 s, up to 1 h 00 m, with jitter; only after FAILED;"
        " exit codes 75, -9" in text
    )
    assert "A=1, B=(secret b#c), C=(parameter c)" in text
    fixed = {"maxAttempts": 3, "backoff": "FIXED", "initialDelayMs": 1000, "maxDelayMs": 1000}
    assert "3 at most, FIXED after 1.00 s\n" in shown(
        render.job(JOB | {"retryPolicy": fixed}), width=200
    ).replace(" \n", "\n").replace("  ", "").replace(" \n", "\n")


def test_the_list_of_dead_runs_of_all_jobs() -> None:
    text = shown(render.dead([RUN | {"state": "DEAD", "reason": "exit code 1", "pool": "batch"}]))

    assert str(RUN["executionId"]) in text
    assert "exit code 1" in text
    assert "batch  2026-05-24 10:00:01" in text


def test_a_run_shows_what_its_latest_attempt_called() -> None:
    call = {
        "method": "POST",
        "url": "https://api.example.com/hooks",
        "status": 204,
        "address": "93.184.216.34:443",
        "timingsMs": {"total": 12.5},
    }
    attempts = [{"number": 1, "call": {**call, "status": 503}}, {"number": 1, "call": call}]

    text = shown(render.execution({**RUN, "attempts": attempts}), width=200)

    assert (
        "Call        POST https://api.example.com/hooks, 204, at 93.184.216.34:443, took 12.5 ms"
        in text
    )
    assert "Call" not in shown(render.execution(RUN))


def test_a_run_shows_which_api_it_called() -> None:
    call = {"service": "sqs", "action": "SendMessage", "status": 200, "durationMs": 3}

    text = shown(render.execution({**RUN, "attempts": [{"number": 1, "call": call}]}), width=200)

    assert "Call        sqs:SendMessage, 200, took 3 ms" in text


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"pool": "calls", "http": {"url": "https://a.example", "method": "PUT"}}, "PUT https://a"),
        ({"pool": "calls", "aws": {"service": "sqs", "action": "SendMessage"}}, "sqs:SendMessage"),
    ],
)
def test_a_job_shows_what_it_calls(target: dict[str, object], text: str) -> None:
    assert text in shown(render.job({**JOB, "target": target}))


def test_status_names_the_deaths_of_parts() -> None:
    parts = {
        "api": {"pid": 7, "deaths": 0, "lastDeath": None},
        "watcher": {"pid": 8, "deaths": 2, "lastDeath": "killed by SIGKILL"},
        "worker-default-0": {"pid": None, "deaths": 1, "lastDeath": "exited with code 3"},
    }

    health = {"status": "ok", "endpoint": "http://127.0.0.1:1", "time": "now", "parts": parts}

    lines = shown(render.health(health)).splitlines()

    found = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert found["api"] == "pid 7"
    assert found["watcher"] == "pid 8, died 2 times, last killed by SIGKILL"
    assert found["worker-default-0"] == "does not run, died once, last exited with code 3"


@pytest.mark.parametrize(("width", "lines"), [(50, 2), (120, 1)])
def test_reasons_have_the_whole_width_and_leave_the_columns_whole(width: int, lines: int) -> None:
    reason = "exit code 1: ValueError: the ledger of 2026-05-23 has no rows, says the report"
    letter = {"executionId": "job_1.x", "messageId": "m", "sentAt": RUN["finishedAt"]}
    dead = RUN | {"executionId": "job_1.x", "state": "DEAD", "reason": reason, "attempt": 3}
    for view, last in (
        (render.executions([dead]), "TRY"),
        (render.dead([dead]), "TRY"),
        (render.letters([letter | {"failure": reason}]), "MESSAGE"),
    ):
        header, _, *below = shown(view, width).splitlines()
        assert last in header
        assert " ".join(" ".join(below).split()) == reason
        assert (len(below), max(map(len, below)) <= width) == (lines, True)
