"""Commands that wait: for a drain, for a run, and for the runs of a backfill."""

import json
import time

import httpx2
import pytest

from nextfire.client import calls
from nextfire_cli import waiting
from tests.unit.cli.conftest import Api, Call

JOB = {"jobId": "job_1", "state": "PAUSED", "type": "MANUAL", "target": {"handler": "hello"}}
BACKFILL = {
    "backfillId": "0123456789abcdef",
    "jobId": "job_1",
    "first": "2026-05-01T00:00:00Z",
    "last": "2026-05-02T00:00:00Z",
    "count": 2,
    "order": "OLDEST_FIRST",
    "askedAt": "2026-05-24T09:00:00Z",
}
BETWEEN = ("--from", "2026-05-01T00:00:00Z", "--to", "2026-05-02T00:00:01Z")


def run(day: str, state: str, finished: str | None = "2026-05-24T09:00:05Z") -> dict[str, object]:
    found: dict[str, object] = {
        "executionId": f"job_1.202605{day}T000000000Z-abcdefgh",
        "jobId": "job_1",
        "state": state,
        "scheduledAt": f"2026-05-{day}T00:00:00Z",
    }
    return found | ({"finishedAt": finished} if finished else {})


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL", 0)


@pytest.mark.parametrize(("state", "code"), [("PAUSED", 0), ("ACTIVE", 1)])
def test_drain_waits_for_its_runs_if_asked_to(
    call: Call,
    api: Api,
    state: str,
    code: int,
) -> None:
    draining = JOB | {"draining": True}
    api.routes["POST /v1/jobs/job_1/drain"] = [draining]
    api.routes["GET /v1/jobs/job_1"] = [draining, JOB | {"state": state}]

    result = call("jobs", "drain", "job_1", "--wait")

    assert result.exit_code == code
    assert len(api.requests) == 3
    assert ("new runs may start" in result.stderr) is bool(code)


def test_a_run_whose_outcome_is_lost_is_known_by_its_id(call: Call, api: Api) -> None:
    def refuse(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    asked = run("24", "PENDING", None)
    api.routes["POST /v1/jobs/job_1/run"] = [asked]
    api.routes[f"GET /v1/executions/{asked['executionId']}"] = [refuse]

    local = {"NEXTFIRE_ENDPOINT": "http://127.0.0.1:1", "NEXTFIRE_TOKEN": "x"}
    result = call("jobs", "run", "job_1", "--wait", "-o", "json", **local)

    assert result.exit_code == 6  # a local stack that was stopped does not come back by itself
    assert f"Waiting for {asked['executionId']}." in result.stderr


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("jobs run job_1", "POST /v1/jobs/job_1/run"),
        ("jobs drain job_1", "POST /v1/jobs/job_1/drain"),
        (f"jobs backfill job_1 {' '.join(BETWEEN)}", "POST /v1/jobs/job_1/backfill"),
        ("runs cancel RUN", "POST /v1/executions/RUN/cancel"),
        ("runs replay RUN", "POST /v1/executions/RUN/replay"),
    ],
)
def test_waiting_outlasts_an_outage_with_a_notice(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch, command: str, asked: str
) -> None:
    monkeypatch.setattr(calls, "FIRST_WAIT", 0)
    monkeypatch.setattr(calls, "READ_AGAIN", 0)
    down = httpx2.Response(503, json={"message": "Service Unavailable"})
    begun = {"drain": JOB | {"draining": True}, "backfill": BACKFILL}
    api.routes[asked] = begun.get(command.split()[1], run("24", "RUNNING", None))
    api.routes["GET /v1/jobs/job_1"] = [*[down] * 5, JOB]
    api.routes[f"GET /v1/executions/{run('24', '')['executionId']}"] = [
        *[down] * 5,
        run("24", "SUCCEEDED"),
    ]
    api.routes["GET /v1/executions"] = {"items": [run("02", "SUCCEEDED")]}

    result = call(*command.split(), "--wait")

    assert result.exit_code == 0, result.output
    assert result.stderr.count("Trying again; Ctrl-C ends this.") == 1


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("DEAD", 1), ("SKIPPED", 1)])
def test_backfill_waits_for_its_runs_if_asked_to(
    call: Call,
    api: Api,
    state: str,
    code: int,
) -> None:
    earlier = run("01", "DEAD", "2026-05-01T00:00:05Z")
    api.routes["POST /v1/jobs/job_1/backfill"] = [BACKFILL]
    api.routes["GET /v1/jobs/job_1"] = [*[JOB | {"backfill": BACKFILL}] * 2, JOB]
    api.routes["GET /v1/executions"] = [
        {"items": [run("02", "RUNNING", None), earlier]},
        {"items": [run("02", state), earlier]},
    ]

    result = call("jobs", "backfill", "job_1", *BETWEEN, "--wait", "--json")

    assert result.exit_code == code
    assert [each["state"] for each in json.loads(result.stdout)["items"]] == [state]
    assert [each.url.path for each in api.requests].count("/v1/jobs/job_1") == 3
    assert api.queries[-1]["from"] == "2026-05-01T00:00:00Z"
    assert api.queries[-1]["to"] == "2026-05-02T00:00:00.001000+00:00"


def test_a_backfill_without_runs_says_why(call: Call, api: Api) -> None:
    earlier = run("01", "SUCCEEDED", "2026-05-01T00:00:05Z")
    api.routes["POST /v1/jobs/job_1/backfill"] = [BACKFILL]
    api.routes["GET /v1/jobs/job_1"] = [JOB]
    api.routes["GET /v1/executions"] = [{"items": [earlier]}]

    result = call("jobs", "backfill", "job_1", *BETWEEN, "--wait")

    assert result.exit_code == 0
    assert result.stdout.startswith("Nothing ran: the occurrences have records already")
    assert "succeeded" not in result.stderr


def test_a_backfill_that_another_one_replaces_is_not_waited_for(
    call: Call,
    api: Api,
) -> None:
    api.routes["POST /v1/jobs/job_1/backfill"] = [BACKFILL]
    other = BACKFILL | {"backfillId": "fedcba9876543210"}
    api.routes["GET /v1/jobs/job_1"] = [JOB | {"backfill": other}]
    api.routes["GET /v1/executions"] = [{"items": [run("01", "SUCCEEDED")]}]

    assert call("jobs", "backfill", "job_1", *BETWEEN, "--wait").exit_code == 0


@pytest.mark.parametrize(("end", "code"), [("SUCCEEDED", 0), ("DEAD", 1)])
def test_redrive_waits_for_the_runs_if_asked_to(call: Call, api: Api, end: str, code: int) -> None:
    runs = [run(day, "PENDING", None) for day in ("01", "02")]
    for each, state in zip(runs, ("SUCCEEDED", end), strict=True):
        path = f"/v1/executions/{each['executionId']}"
        api.routes[f"POST {path}/redrive"] = [each]
        api.routes[f"GET {path}"] = [each | {"state": "RUNNING"}, each | {"state": state}]

    result = call("runs", "redrive", *(str(each["executionId"]) for each in runs), "--wait")

    assert result.exit_code == code
    assert result.stdout.count("PENDING") == 2
    assert f"{runs[1]['executionId']}  {end}" in result.stdout
    assert call("runs", "redrive", "x", "--wait", "--from", "job_1").exit_code == 2


@pytest.mark.parametrize(
    ("command", "asked", "read", "waits_on"),
    [
        ("jobs run job_1", "POST /v1/jobs/job_1/run", "GET /v1/executions/RUN", {}),
        ("jobs drain job_1", "POST /v1/jobs/job_1/drain", "GET /v1/jobs/job_1", {"draining": True}),
    ],
)
def test_who_waits_for_long_asks_less_often(
    command: str,
    asked: str,
    read: str,
    waits_on: dict[str, bool],
    call: Call,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wait of hours would otherwise cost two requests a second; each looks at all runs."""
    slept: list[float] = []
    monkeypatch.setattr(waiting, "POLL", 0.5)
    monkeypatch.setattr(time, "sleep", slept.append)
    under_way: dict[str, object] = run("24", "RUNNING", None) | {"executionId": "RUN"}
    if waits_on:
        under_way = {**JOB, **waits_on}
    api.routes[asked] = [under_way]
    api.routes[read] = [under_way] * 20 + [under_way | {"state": "SUCCEEDED", "draining": False}]

    call(*command.split(), "--wait")

    assert slept[0] == 0.5
    assert slept == sorted(slept)
    assert slept[-1] == 10
