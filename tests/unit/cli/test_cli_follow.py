"""`--follow` reports each change of a job, until its last run."""

import json
import time
from typing import Any

import httpx2
import pytest

from nextfire.client import calls
from nextfire_cli import run_tree, waiting
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


def test_a_job_of_which_nothing_changes_is_asked_less_often(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Following for days would otherwise cost four requests a second."""
    quiet = [JOB] * 10
    polls = iter([*quiet, PAUSED, *quiet, JOB | {"state": "COMPLETED"}])

    class Routes(dict[str, Any]):
        def __getitem__(self, route: str) -> Any:
            return {"items": []} if route.endswith("/executions") else next(polls)

    api.routes = Routes()
    slept: list[float] = []
    monkeypatch.setattr(waiting, "POLL", 0.5)
    monkeypatch.setattr(time, "sleep", slept.append)

    assert call("runs", "list", "job_1", "--follow").exit_code == 0
    assert slept[:2] == [0.5, 0.75]
    assert slept[9] == 3
    assert slept[10] == 0.5, "something has changed"


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


LOCAL = {"NEXTFIRE_ENDPOINT": "http://127.0.0.1:1", "NEXTFIRE_TOKEN": "x"}
DOWN = httpx2.Response(504, json={"message": "Gateway Timeout"})
NOTICE = "The API did not answer in time (504). Trying again; Ctrl-C ends this."


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "FIRST_WAIT", 0)
    monkeypatch.setattr(calls, "READ_AGAIN", 0)
    monkeypatch.setattr(run_tree, "_POLL", 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("command", ["list job_1", "logs job_1.x", "tree job_1.x"])
def test_following_outlasts_an_outage_with_a_notice(call: Call, api: Api, command: str) -> None:
    over = JOB | {"state": "COMPLETED"}
    line = {"attempt": 1, "stream": "stdout", "text": "hello"}
    log = {"items": [line], "ended": False, "cursor": "c"}
    node = RUN | {"state": "RUNNING", "after": [], "critical": False}
    api.routes |= {
        "GET /v1/jobs/job_1": [JOB, *[DOWN] * 5, over],
        "GET /v1/jobs/job_1/executions": {"items": [RUN]},
        "GET /v1/executions/job_1.x/logs": [
            log,
            *[DOWN] * 5,
            log | {"ended": True, "cursor": None},
        ],
        "GET /v1/executions/job_1.x": RUN,
        "GET /v1/executions/job_1.x/chain": [
            {"items": [node]},
            *[DOWN] * 5,
            {"items": [node | {"state": "SUCCEEDED"}]},
        ],
    }

    result = call("runs", *command.split(), "--follow")

    assert result.exit_code == 0, result.output
    assert result.stderr.count(NOTICE) == 1
    if command.startswith("logs"):
        assert result.stdout.count("hello") == 2


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("looks", [[DOWN], [JOB, httpx2.Response(404, json={"title": "No job"})]])
def test_following_ends_on_a_definite_error_and_if_the_api_never_answered(
    call: Call, api: Api, looks: list[Any]
) -> None:
    api.routes |= {
        "GET /v1/jobs/job_1": looks,
        "GET /v1/jobs/job_1/executions": {"items": [RUN]},
    }

    result = call("runs", "list", "job_1", "--follow")

    assert result.exit_code != 0
    assert "Trying again" not in result.stderr


@pytest.mark.usefixtures("at_once")
def test_following_ends_when_the_local_stack_is_stopped(call: Call, api: Api) -> None:
    def refuse(_: httpx2.Request) -> None:
        raise httpx2.ConnectError("refused")

    api.routes |= {
        "GET /v1/jobs/job_1": [JOB, refuse],
        "GET /v1/jobs/job_1/executions": {"items": [RUN]},
    }

    result = call("runs", "list", "job_1", "--follow", **LOCAL)

    assert result.exit_code != 0
    assert "start it with `nextfire up`" in result.stderr
