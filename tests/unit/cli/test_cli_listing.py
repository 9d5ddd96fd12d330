"""Lists of jobs and runs: which are shown, and with which columns."""

import json

import pytest

from tests.unit.cli.conftest import Api, Call

JOB = {
    "jobId": "live",
    "state": "ACTIVE",
    "type": "CRON",
    "schedule": "0 3 * * *",
    "target": {"handler": "hello"},
    "overlap": "SKIP",
    "labels": {"team": "etl"},
}
JOBS = [JOB, JOB | {"jobId": "done", "state": "COMPLETED"}, JOB | {"jobId": "paused"}]


@pytest.mark.parametrize(
    ("flags", "shown", "notice"),
    [
        ((), ["live", "paused"], "1 finished job not listed: --all lists them too."),
        (("--all",), ["live", "done", "paused"], ""),
        (("-a", "--limit", "2"), ["live", "done"], "There may be more than 2: raise --limit."),
        (("--state", "COMPLETED"), ["live", "done", "paused"], ""),  # the API selects them
    ],
)
def test_finished_jobs_are_listed_on_request(
    call: Call,
    api: Api,
    flags: tuple[str, ...],
    shown: list[str],
    notice: str,
) -> None:
    api.routes["GET /v1/jobs"] = [{"items": JOBS}]

    result = call("jobs", "list", *flags, "--json")

    assert [each["jobId"] for each in json.loads(result.stdout)["items"]] == shown
    assert notice in result.stderr


def test_wide_tables_have_more_columns(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs"] = [{"items": JOBS}]
    run = {"executionId": "live.1-x", "jobId": "live", "state": "DEAD", "worker": "w7"}
    api.routes["GET /v1/jobs/live/executions"] = [{"items": [run | {"exitCode": 0}]}]

    assert "team=etl" not in call("jobs", "list").stdout
    assert "team=etl" in call("jobs", "list", "-o", "wide").stdout
    assert "w7" not in call("runs", "list", "live").stdout
    assert "w7" in call("-o", "wide", "runs", "list", "live").stdout


def test_a_job_shows_its_last_and_next_runs(call: Call, api: Api) -> None:
    last = {"executionId": "live.1-x", "state": "DEAD", "reason": "exit code 3: disk full"}
    upcoming = [{"at": f"2026-05-2{day}T03:00:00Z"} for day in (4, 5, 6)]
    bounds = {"startAt": "2026-05-01T00:00:00Z", "maxRuns": 5, "jitterSec": 10}
    bounds |= {"exceptDates": ["2026-12-25", "2026-12-26"]}
    detail = JOB | bounds | {"lastRun": last, "upcoming": upcoming, "nextFireAt": "2026-05-24"}
    api.routes["GET /v1/jobs/live"] = [detail]

    text = call("jobs", "get", "live").stdout

    for shown in (
        "DEAD  live.1-x  (exit code 3: disk full)",
        "2026-05-25T03:00:00Z, 2026-05-26T03:00:00Z",
        "2026-05-01T00:00:00Z",
        "Except dates  2026-12-25, 2026-12-26",
    ):
        assert shown in text
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("Max runs")] == ["5"]
    assert "Jitter" in text


@pytest.mark.parametrize("typed", ["1M", "2h5M"])
def test_a_capital_m_is_not_a_minute(call: Call, api: Api, typed: str) -> None:
    result = call("jobs", "create", "--every", typed, "--handler", "hello")

    assert result.exit_code == 2
    assert "A minute is a small m." in " ".join(result.stderr.replace("│", "").split())
    assert not api.requests


def test_a_job_whose_last_occurrence_is_to_be_skipped_says_so(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs/live"] = [JOB | {"skips": ["2026-05-24T10:00:00Z"]}]

    shown = call("jobs", "get", "live").stdout

    assert "none later; the last one is to be skipped" in shown
