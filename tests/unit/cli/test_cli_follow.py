"""`--follow` reports each change of a job, until its last run."""

import json
from typing import Any

import pytest

from nextfire_cli import waiting
from tests.unit.cli import answers
from tests.unit.cli.answers import JOB, PAUSED, RUN
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES


def test_follow_continues_through_a_pause_and_past_what_cannot_be_read(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = iter(["PAUSED", "ACTIVE", "COMPLETED"])
    asked = []
    unreadable = {"executionId": "job_1.x", "jobId": "job_1", "state": "UNREADABLE"}

    class Routes(dict[str, Any]):
        def __getitem__(self, route: str) -> Any:
            if route.endswith("/executions"):
                return {"items": [unreadable, RUN]}
            asked.append(next(polls))
            return JOB | {"state": asked[-1]}

    api.routes = Routes()
    monkeypatch.setattr(waiting, "POLL", 0)

    result = call("runs", "list", "job_1", "--follow")

    assert result.exit_code == 0, result.output
    assert asked == ["PAUSED", "ACTIVE", "COMPLETED"]
    assert "UNREADABLE" in result.stdout


def test_follow_says_that_the_job_is_paused_and_why(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = iter([PAUSED, PAUSED, JOB, PAUSED, JOB | {"state": "COMPLETED"}])

    class Routes(dict[str, Any]):
        def __getitem__(self, route: str) -> Any:
            return {"items": []} if route.endswith("/executions") else next(polls)

    api.routes = Routes()
    monkeypatch.setattr(waiting, "POLL", 0)

    result = call("runs", "list", "job_1", "--follow")

    assert result.exit_code == 0, result.output
    message = "The job is paused since 2026-05-24T09:00:00Z (the ledger is closed)."
    assert result.stderr.count(message) == 2  # once for each pause
    assert not result.stdout


def test_a_job_without_runs_is_looked_up_to_tell_why(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs/job_1/executions"] = {"items": []}

    assert "due at 2026-05-24T10:00:00Z" in call("runs", "list", "job_1").stdout
    assert json.loads(call("runs", "list", "job_1", "--json").stdout) == {"items": []}


@pytest.mark.usefixtures("states")
def test_follow_shows_each_change_once_and_ends_with_the_jobs_last_run(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL", 0)

    result = call("runs", "list", "job_1", "--follow", "--json")

    assert result.exit_code == 0, result.output
    reported = [json.loads(line)["state"] for line in result.stdout.splitlines()]
    assert reported == ["PENDING", "RUNNING", "SUCCEEDED"]
