"""The `nextfire` command from end to end: options, output and exit codes."""

import json
import subprocess
import sys

import httpx2
import pytest

from tests.unit.cli import answers
from tests.unit.cli.answers import BACKFILL, BETWEEN, ENDPOINT, JOB, PAUSED, QUOTAS, RUN
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES

STATUS = {
    "status": "ok",
    "time": "2026-05-24T10:00:00Z",
    "endpoint": ENDPOINT,
    "activity": {
        "running": 2,
        "waiting": 1,
        "succeeded": 5,
        "failed": 1,
        "countedFrom": "2026-05-24T09:46:00Z",
        "asOf": "2026-05-24T09:59:58Z",
        "lagSec": 5.2,
    },
}


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["jobs", "create", "--handler", "hello"], "--cron"),
        (["jobs", "update", "job_1", "--misfire", "never"], "--misfire"),
        (["jobs", "update", "job_1", "--overlap", "forbid"], "--overlap"),
        (["jobs", "update", "job_1", "--relevancy-window", "soon"], "--relevancy-window"),
        (["jobs", "create", "--in", "5s"], "--handler"),
        (["jobs", "create", "--in", "5s", "--cron", "* * * * *"], "--at"),
        (["jobs", "update", "job_1"], "--cron"),
        (["jobs", "backfill", "job_1"], "--from"),
        (["jobs", "backfill", "job_1", "--to", "2026-05-01"], "--from"),
        (["jobs", "backfill", "job_1", "--stop", "--newest-first"], "--stop"),
        (["jobs", "backfill", "job_1", "--max", "1001"], "--max"),
        (["jobs", "list", "--limit", "0"], "--limit"),
        (["runs", "get"], "EXECUTION_ID"),
    ],
)
def test_wrong_usage_exits_with_2_and_sends_no_request(
    call: Call, api: Api, args: list[str], named: str
) -> None:
    result = call(*args)

    assert result.exit_code == 2
    assert named in result.stderr
    assert not result.stdout
    assert not api.requests


@pytest.mark.parametrize(
    ("args", "document"),
    [
        (["jobs", "create", "--in", "5s", "--handler", "hello"], JOB),
        (["jobs", "list"], {"items": [JOB]}),
        (["jobs", "get", "job_1"], JOB),
        (["jobs", "update", "job_1", "--cron", "* * * * *"], JOB | {"revision": 2}),
        (["jobs", "delete", "job_1", "--yes"], JOB | {"state": "CANCELLED"}),
        (["jobs", "pause", "job_1"], PAUSED),
        (["jobs", "drain", "job_1"], PAUSED | {"draining": True}),
        (["jobs", "backfill", "job_1", *BETWEEN], BACKFILL),
        (["jobs", "backfill", "job_1", "--stop"], JOB),
        (["jobs", "resume", "job_1"], JOB | {"revision": 3}),
        (["runs", "list", "job_1"], {"items": [RUN]}),
        (["runs", "get", RUN["executionId"]], RUN),
        (["status"], STATUS),
    ],
)
def test_json_is_one_document_and_may_be_asked_for_anywhere(
    call: Call, args: list[str], document: object
) -> None:
    for result in (call("--json", *args), call(*args, "--json")):
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout) == document


def test_quotas_are_shown_with_their_usage_and_unlimited_ones_too(call: Call) -> None:
    result = call("quotas")

    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["QUOTA", "AT", "MOST", "USED"],
        ["jobs", "20", "12"],
        ["runsPerMinute", "600", "31"],
        ["concurrentRuns", "none"],
        ["payloadBytes", "none"],
        ["shortestIntervalSec", "none"],
        ["requestsPerSecond", "none"],
        ["requestBurst", "none"],
        ["keyRequestsPerSecond", "none"],
        ["keyRequestBurst", "none"],
        ["newer", "7"],
        [],
        ["Minute", "ends", "2026-05-24T10:01:00Z"],
        ["Weight", "3"],
        ["Tenant", "acme,", "with", "its", "own", "entry", "in", "the", "setting", "quotas"],
    ]
    assert json.loads(call("quotas", "--json").stdout) == QUOTAS


def test_an_answer_that_lacks_a_field_is_an_error(call: Call, api: Api) -> None:
    """Such as one of another API, which has the same route."""
    api.routes["GET /v1/quotas"] = {"limits": []}

    result = call("quotas")

    assert result.exit_code == 1
    assert "has no 'quotas'" in result.stderr
    assert "nextfire doctor" in result.stderr
    assert isinstance(call("quotas", "--debug").exception, KeyError)


def test_a_list_that_continues_says_so_on_stderr_only(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs"] = {"items": [JOB], "cursor": "c"}

    result = call("jobs", "list", "--limit", "1", "--json")

    assert json.loads(result.stdout) == {"items": [JOB]}
    assert "--limit" in result.stderr


def test_a_list_of_all_names_no_label(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs"] = {"items": [JOB]}

    call("jobs", "list")

    [request] = api.requests
    assert set(request.url.params) <= {"limit"}


def test_the_endpoint_option_wins_and_its_region_is_signed_for(call: Call, api: Api) -> None:
    other = "https://xyz.execute-api.us-east-2.amazonaws.com"

    call("jobs", "list", f"--endpoint={other}")
    call("jobs", "list", "--endpoint", "https://jobs.test", "--region", "ap-south-1")

    first, second = api.requests
    assert first.url.host == "xyz.execute-api.us-east-2.amazonaws.com"
    assert "/us-east-2/execute-api/" in first.headers["Authorization"]
    assert second.url.host == "jobs.test"
    assert "/ap-south-1/execute-api/" in second.headers["Authorization"]


@pytest.mark.parametrize(
    ("args", "environment", "region"),
    [
        (("--region", "r-1"), {"AWS_REGION": "r-2", "AWS_DEFAULT_REGION": "r-3"}, "r-1"),
        ((), {"AWS_REGION": "r-2", "AWS_DEFAULT_REGION": "r-3"}, "r-2"),
        ((), {"AWS_DEFAULT_REGION": "r-3"}, "r-3"),
    ],
)
def test_the_region_is_the_options_then_that_of_the_environment(
    call: Call, api: Api, args: tuple[str, ...], environment: dict[str, str], region: str
) -> None:
    call("jobs", "list", "--endpoint", "https://jobs.test", *args, **environment)
    # The region in the address of an API takes precedence over the environment.
    call("jobs", "list", **environment)

    assert f"/{region}/execute-api/" in api.requests[0].headers["Authorization"]
    assert "/eu-west-1/execute-api/" in api.requests[1].headers["Authorization"]


def test_arguments_after_two_dashes_are_not_options(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs/--json"] = JOB

    assert "Job" in call("jobs", "get", "--", "--json").stdout


@pytest.mark.parametrize(
    ("args", "environment", "expected"),
    [
        ((), {"NEXTFIRE_ENDPOINT": None}, "nextfire up"),
        ((), {"NEXTFIRE_ENDPOINT": "abc.example"}, "https://"),
        ((), {"NEXTFIRE_ENDPOINT": "https://jobs.test"}, "--region"),
        ((), {"AWS_ACCESS_KEY_ID": None}, "--profile"),
        (
            ("--endpoint", "http://127.0.0.1:4566"),
            {"AWS_ACCESS_KEY_ID": None},
            "Error: No local stack is up here",
        ),
        (("--endpoint", "http://localhost:4566"), {}, "nextfire up"),  # no region
        (("--profile", "missing"), {}, "--profile"),
    ],
)
def test_missing_settings_of_a_command_are_named(
    call: Call, api: Api, args: tuple[str, ...], environment: dict[str, str | None], expected: str
) -> None:
    result = call("jobs", "list", *args, **environment)

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert expected in result.stderr
    assert not result.stdout
    assert not api.requests


@pytest.mark.parametrize("args", [("jobs", "list"), ("jobs", "list", "--json"), ("doctor",)])
def test_remedies_of_the_client_name_flags(call: Call, args: tuple[str, ...]) -> None:
    result = call(*args, NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "--endpoint URL or NEXTFIRE_ENDPOINT" in result.output
    assert "endpoint=URL" not in result.output


def test_a_refusal_exits_with_its_kind_and_reports_why(call: Call, api: Api) -> None:
    problem = {"title": "Not Found", "status": 404, "detail": "Job 'job_2' not found."}
    api.routes["GET /v1/jobs/job_2"] = httpx2.Response(404, json=problem)

    text, as_json = call("jobs", "get", "job_2"), call("jobs", "get", "job_2", "--json")

    assert (text.exit_code, as_json.exit_code) == (3, 3)
    assert text.stderr == "Error: Not Found (404).\n  Job 'job_2' not found.\n"
    assert not as_json.stdout
    assert json.loads(as_json.stderr) == problem


def test_control_characters_in_api_errors_are_escaped(call: Call, api: Api) -> None:
    problem = {"title": "a\x1b[2J", "status": 404, "detail": "b\x1b[2J\x07"}
    api.routes["GET /v1/jobs/job_1"] = httpx2.Response(404, json=problem)

    stderr = call("jobs", "get", "job_1").stderr

    assert stderr == "Error: a\\x1b[2J (404).\n  b\\x1b[2J\\x07\n"


def test_the_module_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nextfire_cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "Schedules jobs" in done.stdout


@pytest.mark.parametrize("end", ["\r", "/v1", "/v1/ \r\n"])
def test_an_endpoint_in_the_environment_may_have_a_line_end(call: Call, api: Api, end: str) -> None:
    result = call("jobs", "get", "job_1", "-o", "name", NEXTFIRE_ENDPOINT=ENDPOINT + end)

    assert result.exit_code == 0, result.output
    assert str(api.requests[0].url) == f"{ENDPOINT}/v1/jobs/job_1"


def test_an_endpoint_that_is_not_a_url_is_an_error(call: Call) -> None:
    result = call("jobs", "get", "job_1", NEXTFIRE_ENDPOINT="https://[::1")

    assert result.exit_code == 1
    assert "Error: 'https://[::1' is not a URL: Invalid port: ':1'." in result.stderr
