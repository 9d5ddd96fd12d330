"""The `nextfire` command from end to end: requests, output and exit codes."""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from nextfire.adapters.packages.inline_metadata import parse_inline_metadata
from nextfire.adapters.s3.signatures import VerifyingScriptStore
from nextfire.client.folder import write_private
from nextfire.domain.script import ScriptSource
from nextfire_cli import confirmation, signing, waiting
from nextfire_cli.main import app
from tests.fakes import MemoryScriptStore

ENDPOINT = "https://abc123.execute-api.eu-west-1.amazonaws.com"
LOCAL_KEY = f"nf.000000000000.3f9c0a77d1e2b456.{'A' * 43}"
JOB = {
    "jobId": "job_1",
    "state": "ACTIVE",
    "revision": 1,
    "nextFireAt": "2026-05-24T10:00:00Z",
    "type": "DELAY",
    "schedule": "PT5S",
    "timezone": "UTC",
    "target": {"pool": "default", "handler": "hello"},
}
PAUSED = JOB | {
    "state": "PAUSED",
    "revision": 2,
    "pauseReason": "the ledger is closed",
    "pausedAt": "2026-05-24T09:00:00Z",
}
BACKFILL = {
    "backfillId": "0123456789abcdef",
    "jobId": "job_1",
    "first": "2026-05-01T00:00:00Z",
    "last": "2026-05-02T23:00:00Z",
    "count": 48,
    "order": "OLDEST_FIRST",
    "askedAt": "2026-05-24T09:00:00Z",
}
RUN = {
    "executionId": "job_1.20260524T100000000Z-abcdefgh",
    "jobId": "job_1",
    "state": "SUCCEEDED",
    "scheduledAt": "2026-05-24T10:00:00Z",
    "dispatchedAt": "2026-05-24T10:00:00.031Z",
    "attempt": 1,
}
QUOTAS = {
    "quotas": {"jobs": 20, "runsPerMinute": 600, "newer": 7},
    "used": {"jobs": 12, "runsPerMinute": 31},
    "minuteEndsAt": "2026-05-24T10:01:00Z",
    "weight": 3,
}


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
NUMBERS = {
    "running": 2,
    "pending": 1,
    "from": "2026-05-24T09:46:00Z",
    "minutes": [
        {"at": "2026-05-24T09:48:00Z", "succeeded": 2, "dead": 0, "cancelled": 0, "skipped": 0},
        {"at": "2026-05-24T09:51:00Z", "succeeded": 3, "dead": 1, "cancelled": 4, "skipped": 0},
    ],
    "overview": {"asOf": "2026-05-24T09:59:58Z", "lagSec": 5.2},
}
BETWEEN = ("--from", "2026-05-01T00:00:00Z", "--to", "2026-05-03T00:00:00Z")


class Api:
    """Answers by method and path; records the requests."""

    def __init__(self, routes: dict[str, Any]) -> None:
        self.routes = routes
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        is_script = request.url.path.endswith("/versions")
        route = f"{request.method} {request.url.path}"
        is_there = is_script and route not in self.routes
        answer = {"items": [{"version": "v1"}]} if is_there else self.routes[route]
        if callable(answer):
            answer = answer(request)
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, json=answer)

    @property
    def body(self) -> Any:
        return json.loads(self.requests[-1].content)


@pytest.fixture
def api() -> Api:
    return Api(
        {
            "POST /v1/jobs": httpx2.Response(201, json=JOB),
            "GET /v1/jobs": {"items": [JOB]},
            "GET /v1/jobs/job_1": JOB,
            "PATCH /v1/jobs/job_1": JOB | {"revision": 2},
            "DELETE /v1/jobs/job_1": JOB | {"state": "CANCELLED"},
            "POST /v1/jobs/job_1/pause": PAUSED,
            "POST /v1/jobs/job_1/drain": PAUSED | {"draining": True},
            "POST /v1/jobs/job_1/backfill": httpx2.Response(202, json=BACKFILL),
            "DELETE /v1/jobs/job_1/backfill": JOB,
            "POST /v1/jobs/job_1/resume": JOB | {"revision": 3},
            "GET /v1/jobs/job_1/executions": {"items": [RUN]},
            f"GET /v1/executions/{RUN['executionId']}": RUN,
            "GET /v1/overview": NUMBERS,
            "GET /v1/executions": {"items": [RUN | {"state": "DEAD"}]},
            "GET /v1/quotas": QUOTAS,
            "GET /v1/health": {"status": "ok", "time": "2026-05-24T10:00:00Z"},
        }
    )


@pytest.fixture
def call(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)  # a folder without a local stack
    environment = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_PROFILE": None,
        "AWS_REGION": None,
        "AWS_DEFAULT_REGION": None,
        "NEXTFIRE_ENDPOINT": ENDPOINT,
        "NEXTFIRE_API_KEY": None,
        "NEXTFIRE_TOKEN": None,
        "NEXTFIRE_AUTH": None,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }

    def run(*args: str, **changes: str | None) -> Result:
        answer = changes.pop("input", None)
        return CliRunner().invoke(
            app,
            list(args),
            input=answer,
            env=environment | changes,
            obj=httpx2.MockTransport(api),
        )

    return run


Call = Callable[..., Result]


def test_create_sends_what_the_flags_say(call: Call, api: Api) -> None:
    result = call("jobs", "create", "--in", "5s", "--handler", "hello", "--payload", '{"a": 1}')

    assert result.exit_code == 0, result.output
    assert api.body == {
        "type": "DELAY",
        "schedule": "PT5S",
        "target": {"handler": "hello"},
        "payload": {"a": 1},
    }
    assert "job_1" in result.stdout
    assert "2026-05-24T10:00:00Z" in result.stdout


def test_create_reads_a_document_from_stdin(call: Call, api: Api) -> None:
    result = call("jobs", "create", "-f", "-", "--name", "n", input="type: DELAY\nschedule: PT1S\n")

    assert result.exit_code == 0, result.output
    assert api.body == {"type": "DELAY", "schedule": "PT1S", "name": "n"}


@pytest.mark.parametrize(
    "arguments",
    [["create", "--in", "5s", "--handler", "h"], ["update", "job_1"]],
    ids=["create", "update"],
)
def test_policies_are_sent_as_the_flags_say(call: Call, api: Api, arguments: list[str]) -> None:
    flags = ["--misfire", "skip", "--relevancy-window", "10m", "--overlap", "REPLACE"]

    result = call("jobs", *arguments, *flags)

    assert result.exit_code == 0, result.output
    assert api.body["misfire"] == {"policy": "SKIP", "relevancyWindowSec": 600}
    assert api.body["overlap"] == "REPLACE"


@pytest.mark.parametrize("command", ["create", "update"])
def test_the_help_of_handler_names_the_digest(call: Call, command: str) -> None:
    shown = call("jobs", command, "--help", COLUMNS="200").stdout

    assert "NAME[@sha256:DIGEST]" in shown
    assert "scripts push" in shown


def test_what_no_flag_names_is_not_sent(call: Call, api: Api) -> None:
    call("jobs", "update", "job_1", "--overlap", "queue")
    assert api.body == {"overlap": "QUEUE"}
    call("jobs", "update", "job_1", "--relevancy-window", "30")
    assert api.body == {"misfire": {"relevancyWindowSec": 30}}


@pytest.mark.parametrize("command", ["create", "update"])
def test_both_commands_have_the_same_flags(call: Call, command: str) -> None:
    shown = call("jobs", command, "--help", COLUMNS="200").stdout

    for flag in (
        *("--cron", "--at", "--in", "--every", "--date", "--start-at", "--end-at", "--dst"),
        *("--max-runs", "--jitter", "--priority", "--handler", "--relevancy-window"),
        *("--backoff", "--retry-delay", "--max-retry-delay", "--retry-jitter", "--retry-on"),
        *("--retry-exit-code", "--env", "--secret", "--parameter"),
        *("RUN_ALL|RUN_LATEST|SKIP", "ALLOW|QUEUE|SKIP|REPLACE"),
    ):
        assert flag in shown
    assert ("--id " in shown) == (command == "create")
    assert ("JOB_ID" in shown) == (command == "update")
    assert "document" not in shown.lower().replace("a job document", "")


def test_create_and_update_send_all_of_when(call: Call, api: Api) -> None:
    flags = [
        *("--date", "2030-01-01", "--date", "2031-01-01"),
        *("--start-at", "2029-01-01", "--end-at", "2032-01-01", "--dst", "each"),
        *("--max-runs", "7", "--jitter", "10m", "--priority", "high"),
    ]
    sent = {
        "type": "DATES",
        "schedule": ["2030-01-01", "2031-01-01"],
        "startAt": "2029-01-01",
        "endAt": "2032-01-01",
        "dst": "EACH",
        "maxRuns": 7,
        "jitterSec": 600,
        "priority": "HIGH",
    }

    created = call("jobs", "create", *flags, "--handler", "h", "--id", "job_1")
    assert created.exit_code == 0, created.output
    assert api.body == sent | {"jobId": "job_1", "target": {"handler": "h"}}
    call("jobs", "update", "job_1", *flags)
    assert api.body == sent
    call("jobs", "update", "job_1", "--every", "1h30m")
    assert api.body == {"type": "INTERVAL", "schedule": "PT1H30M"}


def test_retries_are_sent_as_the_flags_say(call: Call, api: Api) -> None:
    flags = [
        *("--max-attempts", "5", "--backoff", "linear", "--retry-delay", "30s"),
        *("--max-retry-delay", "1h", "--retry-jitter", "full", "--retry-on", "timed_out"),
        *("--retry-on", "FAILED", "--retry-exit-code", "75", "--retry-exit-code", "-9"),
        *("--env", "A=1", "--secret", "B=b#c", "--parameter", "C=c"),
    ]

    result = call("jobs", "update", "job_1", *flags)

    assert result.exit_code == 0, result.output
    assert api.body == {
        "target": {"env": {"A": "1", "B": {"secret": "b", "key": "c"}, "C": {"parameter": "c"}}},
        "retryPolicy": {
            "maxAttempts": 5,
            "backoff": "LINEAR",
            "initialDelayMs": 30_000,
            "maxDelayMs": 3_600_000,
            "jitter": "FULL",
            "retryOn": {"states": ["TIMED_OUT", "FAILED"], "exitCodes": [75, -9]},
        },
    }
    stderr = call("jobs", "update", "job_1", "--retry-on", "CANCELLED", COLUMNS="200").stderr
    assert "'CANCELLED' is not one of FAILED, TIMED_OUT, WORKER_LOST." in stderr


def test_an_invalid_choice_lists_the_choices_as_typed(call: Call) -> None:
    stderr = call("jobs", "update", "job_1", "--misfire", "never", COLUMNS="200").stderr

    assert "'never' is not one of RUN_ALL, RUN_LATEST, SKIP." in stderr
    assert "Value error" not in stderr


@pytest.mark.parametrize(
    ("reason", "already"),
    [("the ledger is closed", False), ("lunch", True), (None, True)],
)
def test_pausing_what_is_paused_says_that_its_reason_stays(
    call: Call, reason: str | None, *, already: bool
) -> None:
    flags = ["--reason", reason] if reason else []

    result = call("jobs", "pause", "job_1", *flags)

    assert result.exit_code == 0
    assert ("It was paused already" in result.stderr) == already
    assert "the ledger is closed" in result.stdout


def test_pause_sends_its_reason_and_shows_it(call: Call, api: Api) -> None:
    result = call("jobs", "pause", "job_1", "--reason", "the ledger is closed")
    assert api.body == {"reason": "the ledger is closed"}
    assert "2026-05-24T09:00:00Z  (the ledger is closed)" in result.stdout

    call("jobs", "pause", "job_1")
    assert api.body == {}
    assert "ACTIVE" in call("jobs", "resume", "job_1").stdout


def test_drain_sends_its_reason_and_shows_how_far_it_is(call: Call, api: Api) -> None:
    result = call("jobs", "drain", "job_1", "--reason", "the ledger is closed")
    assert api.body == {"reason": "the ledger is closed"}
    assert "earlier runs have not ended" in result.stdout
    assert "2026-05-24T09:00:00Z  (the ledger is closed)" in result.stdout

    call("jobs", "drain", "job_1")
    assert api.body == {}


def test_backfill_sends_what_it_is_given_and_shows_how_many(call: Call, api: Api) -> None:
    result = call("jobs", "backfill", "job_1", *BETWEEN)
    assert api.body == {"from": "2026-05-01T00:00:00Z", "to": "2026-05-03T00:00:00Z"}
    assert "48" in result.stdout

    more = ["--max", "50", "--newest-first", "--reason", "it is new"]
    assert call("jobs", "backfill", "job_1", *BETWEEN, *more).exit_code == 0
    assert {name: api.body[name] for name in ("max", "order", "reason")} == {
        "max": 50,
        "order": "NEWEST_FIRST",
        "reason": "it is new",
    }
    assert "ACTIVE" in call("jobs", "backfill", "job_1", "--stop").stdout
    assert api.requests[-1].method == "DELETE"


def test_a_backfill_that_goes_on_is_shown_with_its_job(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs/job_1"] = JOB | {"backfill": BACKFILL}
    assert "48 occurrences" in call("jobs", "get", "job_1").stdout


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
        (["jobs", "backfill", "job_1", "--from", "2026-05-01"], "--to"),
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
    ]
    assert json.loads(call("quotas", "--json").stdout) == QUOTAS


def test_a_list_that_goes_on_says_so_on_stderr_only(call: Call, api: Api) -> None:
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


def test_arguments_after_two_dashes_are_no_options(call: Call, api: Api) -> None:
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


def test_a_refusal_exits_with_its_kind_and_reports_why(call: Call, api: Api) -> None:
    problem = {"title": "Not Found", "status": 404, "detail": "Job 'job_2' not found."}
    api.routes["GET /v1/jobs/job_2"] = httpx2.Response(404, json=problem)

    text, as_json = call("jobs", "get", "job_2"), call("jobs", "get", "job_2", "--json")

    assert (text.exit_code, as_json.exit_code) == (3, 3)
    assert text.stderr == "Error: Not Found (404).\n  Job 'job_2' not found.\n"
    assert not as_json.stdout
    assert json.loads(as_json.stderr) == problem


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_delete_names_yes_where_nobody_can_answer(
    call: Call, api: Api, output: tuple[str, ...]
) -> None:
    result = call("jobs", "delete", "job_1", *output, input="y\n")

    assert result.exit_code == 1
    assert "add --yes" in result.stderr
    assert not api.requests


def test_delete_asks_first(call: Call, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "in_terminal", lambda: True)
    refused = call("jobs", "delete", "job_1", input="n\n")
    assert refused.exit_code == 1
    assert not api.requests

    agreed = call("jobs", "delete", "job_1", input="y\n")
    assert agreed.exit_code == 0
    assert "CANCELLED" in agreed.stdout


@pytest.fixture
def states(api: Api) -> list[tuple[str, list[dict[str, Any]]]]:
    """The job's state and its runs on each successive poll."""
    polls = [
        ("ACTIVE", []),
        ("ACTIVE", [RUN | {"state": "PENDING"}]),
        ("ACTIVE", [RUN | {"state": "PENDING"}]),
        ("COMPLETED", [RUN | {"state": "RUNNING"}]),
        ("COMPLETED", [RUN]),
    ]

    class Routes(dict[str, Any]):
        def __getitem__(self, route: str) -> Any:
            if route.endswith("/executions"):
                return {"items": polls.pop(0)[1]}
            return JOB | {"state": polls[0][0]}

    api.routes = Routes()
    return polls


def test_follow_goes_on_through_a_pause_and_past_what_cannot_be_read(
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


def test_control_characters_in_api_errors_are_escaped(call: Call, api: Api) -> None:
    problem = {"title": "a\x1b[2J", "status": 404, "detail": "b\x1b[2J\x07"}
    api.routes["GET /v1/jobs/job_1"] = httpx2.Response(404, json=problem)

    stderr = call("jobs", "get", "job_1").stderr

    assert stderr == "Error: a\\x1b[2J (404).\n  b\\x1b[2J\\x07\n"


@pytest.mark.usefixtures("states")
def test_follow_tells_each_change_once_and_ends_with_the_jobs_last_run(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "POLL", 0)

    result = call("runs", "list", "job_1", "--follow", "--json")

    assert result.exit_code == 0, result.output
    reported = [json.loads(line)["state"] for line in result.stdout.splitlines()]
    assert reported == ["PENDING", "RUNNING", "SUCCEEDED"]


@pytest.fixture
def stack(tmp_path: Path) -> dict[str, Any]:
    """The state that `nextfire up` writes to the parent of the working directory."""
    return {
        "endpoint": "http://127.0.0.1:4566/_aws/execute-api/abc/$default",
        "aws_endpoint": "http://127.0.0.1:4566",
        "region": "us-east-1",
        "account_id": "000000000000",
        "access_key": "LOCALKEY",
        "secret_key": "local",
        "key_file": str(tmp_path / ".nextfire" / "api-key"),
        "scripts_bucket": "scripts",
        "outputs_bucket": "outputs",
        "event_bus": "events",
        "tables": {},
        "pools": {},
        "functions": {},
        "roles": {},
        "processes": [],
    }


@pytest.fixture
def up(
    stack: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    def write() -> None:
        (tmp_path / ".nextfire").mkdir(mode=0o755)
        write_private(tmp_path / ".nextfire" / "stack.json", json.dumps(stack))
        write_private(tmp_path / ".nextfire" / "api-key", LOCAL_KEY + "\n")
        (tmp_path / "below").mkdir()
        monkeypatch.chdir(tmp_path / "below")

    return write


def test_the_local_stack_is_found_from_below_and_called_with_its_key(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    path = "/_aws/execute-api/abc/$default/v1/jobs"
    api.routes[f"GET {path}"] = {"items": []}
    up()

    result = call("jobs", "list", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 0, result.output
    assert str(api.requests[0].url).startswith(stack["endpoint"])
    assert api.requests[0].headers["Authorization"] == f"Bearer {LOCAL_KEY}"
    call("jobs", "list", "--auth", "iam", NEXTFIRE_ENDPOINT=None)
    assert "Credential=LOCALKEY/" in api.requests[1].headers["Authorization"]


def test_a_local_stack_whose_key_is_gone_says_so(
    call: Call, api: Api, up: Callable[[], None], tmp_path: Path
) -> None:
    up()
    (tmp_path / ".nextfire" / "api-key").unlink()

    result = call("jobs", "list", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "start it again" in result.stderr
    assert not api.requests


def test_another_endpoint_is_never_sent_the_local_stacks_key(
    call: Call, api: Api, up: Callable[[], None]
) -> None:
    up()

    call("jobs", "list")

    assert "Credential=AKIDEXAMPLE/" in api.requests[0].headers["Authorization"]


def test_a_stack_that_lost_a_process_gets_no_request(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    stack["processes"] = [{"name": "ministack", "pid": 99_999_999, "started": "another time"}]
    up()

    result = call("status", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "lost one of its processes: ministack." in result.stderr
    assert not api.requests


def test_a_stack_that_lost_a_worker_says_so_and_answers(
    call: Call, api: Api, stack: dict[str, Any], up: Callable[[], None]
) -> None:
    dead = {"name": "worker-default-0", "pid": 99_999_999, "started": "another time"}
    stack["processes"] = [*stack["processes"], dead]
    stack["deaths"] = {"worker-default-0": {"count": 1, "last": "killed by SIGKILL"}}
    base = "GET /_aws/execute-api/abc/$default/v1"
    api.routes[f"{base}/health"] = {"status": "ok", "time": "2026-05-24T10:00:00Z"}
    missing = {"title": "Not Found", "status": 404, "detail": ""}
    api.routes[f"{base}/overview"] = httpx2.Response(404, json=missing)
    api.routes[f"{base}/executions"] = {"items": []}
    up()

    result = call("status", NEXTFIRE_ENDPOINT=None)

    assert result.exit_code == 1
    assert "does not run, died once, last killed by SIGKILL" in result.stdout
    assert "Not on time: worker-default-0 does not run." in result.stderr


UPLOAD = "https://scripts.s3.eu-west-1.amazonaws.com/acme/default/x?X-Amz-Signature=secret"


@pytest.fixture
def script_api(api: Api) -> Api:
    """An API that accepts scripts, and S3 behind it."""

    def upload(request: httpx2.Request) -> httpx2.Response:
        asked = json.loads(request.content)
        where = {"pool": asked["pool"], "handler": asked["handler"], "url": "s3://scripts/x"}
        headers = {"x-amz-checksum-sha256": "abc", "Content-Type": "text/x-python"}
        document = where | {"uploadUrl": UPLOAD, "headers": headers, "method": "PUT"}
        return httpx2.Response(201, json=document)

    api.routes["POST /v1/scripts/uploads"] = upload
    api.routes["PUT /acme/default/x"] = httpx2.Response(200)
    return api


def test_a_script_is_pushed_where_the_api_says(call: Call, script_api: Api, tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text("print(1)")

    pushed = call("scripts", "push", str(script), "--pool", "batch")
    renamed = call("scripts", "push", str(script), "--name", "other", "--json")

    digest = hashlib.sha256(b"print(1)").hexdigest()
    assert pushed.stdout == f"s3://scripts/x\nreport@sha256:{digest}\n", pushed.output
    where = {"url": "s3://scripts/x", "pool": "default", "handler": "other"}
    assert json.loads(renamed.stdout) == where | {"sha256": digest, "signed": False}
    asked, put, *_ = script_api.requests
    assert json.loads(asked.content) == {
        "handler": "report",
        "pool": "batch",
        "size": 8,
        "sha256": digest,
    }
    assert (put.method, str(put.url), put.content) == ("PUT", UPLOAD, b"print(1)")
    assert put.headers["x-amz-checksum-sha256"] == "abc"
    assert "Authorization" not in put.headers
    assert "secret" not in pushed.output + renamed.output


def test_a_script_is_signed_for_its_tenant_pool_and_name(
    call: Call, script_api: Api, tmp_path: Path
) -> None:
    script, key = tmp_path / "report.py", tmp_path / "release.pem"
    script.write_text("print(1)")
    public = call("scripts", "keygen", str(key)).stdout.strip()

    pushed = call("scripts", "push", str(script), "--sign", str(key), "--tenant", "acme")

    assert pushed.exit_code == 0, pushed.output
    asked = json.loads(script_api.requests[0].content)
    stored = MemoryScriptStore()
    url = "s3://scripts/pools/default/acme/report.py"
    stored.upload(url, b"print(1)", asked["signature"])
    VerifyingScriptStore(stored, signers=[public], pool="default").fetch(ScriptSource(url, "acme"))
    assert key.read_text() not in pushed.output


@pytest.mark.parametrize(
    "more", [("--tenant", "acme"), ("--name", f"report@sha256:{'a' * 64}"), ("--sign", "/nowhere")]
)
def test_a_push_that_makes_no_sense_is_refused(
    call: Call, script_api: Api, tmp_path: Path, more: tuple[str, str]
) -> None:
    script = tmp_path / "report.py"
    script.write_text("print(1)")

    assert call("scripts", "push", str(script), *more).exit_code == 2
    assert not script_api.requests


def test_a_lock_is_written_into_the_script(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "report.py"
    block = "# /// script\n# dependencies = ['demo-pkg']\n# ///\nprint(1)\n"
    script.write_text(block)
    for version in ("1.0", "2.0"):
        line = f"demo-pkg=={version} --hash=sha256:{'0' * 64}"
        monkeypatch.setattr(signing, "resolve", lambda *_, line=line: [line])
        assert call("scripts", "lock", str(script)).exit_code == 0

        inline = parse_inline_metadata(script.read_bytes())
        assert (inline.dependencies, inline.locked) == (("demo-pkg",), (line,))
        assert script.read_text().endswith("# ///\nprint(1)\n")
    script.write_text("print(1)\n")
    assert "no block" in call("scripts", "lock", str(script)).stderr


def test_an_upload_that_is_refused_is_told_without_its_url(
    call: Call, script_api: Api, tmp_path: Path
) -> None:
    script = tmp_path / "report.py"
    script.touch()
    script_api.routes["PUT /acme/default/x"] = httpx2.Response(403, text="<Error/>")

    result = call("scripts", "push", str(script))

    assert result.exit_code == 1
    assert "refused the upload with 403" in result.stderr
    assert "secret" not in result.output


def test_scripts_and_their_versions_are_listed(call: Call, api: Api) -> None:
    script = {
        "pool": "batch",
        "handler": "report",
        "url": "s3://scripts/acme/batch/report.py",
        "size": 8,
        "modifiedAt": "2026-05-24T10:00:00Z",
    }
    api.routes["GET /v1/scripts"] = {"items": [script]}
    version = {"versionId": "v2", "modifiedAt": "2026-05-24T10:00:00Z", "latest": True}
    api.routes["GET /v1/scripts/batch/report/versions"] = {
        "items": [version, version | {"versionId": "v1", "latest": False, "size": 8}]
    }

    listed = call("scripts", "list", "--pool", "batch", "--json")
    versions = call("scripts", "versions", "report", "--pool", "batch")

    assert json.loads(listed.stdout) == {"items": [script]}
    assert api.requests[0].url.params["pool"] == "batch"
    assert "deleted" in versions.stdout
    assert "v1" in versions.stdout


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as writer:
        for name, text in files.items():
            writer.writestr(name.replace("_py", ".py"), text)
    return path


def test_an_archive_is_pushed_with_its_ending(call: Call, script_api: Api, tmp_path: Path) -> None:
    app = archive(tmp_path / "app.zip", __main___py="print(1)", lib_py="")

    call("scripts", "push", str(app))
    call("scripts", "push", str(app), "--name", "report")

    asked = [json.loads(each.content) for each in script_api.requests if each.method == "POST"]
    assert [each["handler"] for each in asked] == ["app.zip", "report.zip"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("no.zip", "is not a zip archive"),
        ("empty.zip", "has no __main__.py at its top"),
        ("hidden.py", "is an archive"),
        ("large.py", "bytes, more than 10485760"),
        ("Makefile", "is not a script"),
        ("broken.py", "is not valid TOML"),
    ],
)
def test_a_script_that_no_executor_would_run_is_not_uploaded(
    call: Call, tmp_path: Path, file: str, message: str
) -> None:
    (tmp_path / "no.zip").write_text("x")
    archive(tmp_path / "empty.zip", lib_py="")
    archive(tmp_path / "hidden.py", __main___py="")
    (tmp_path / "Makefile").touch()
    (tmp_path / "broken.py").write_text("# /// script\n# dependencies = [\n# ///\n")
    (tmp_path / "large.py").write_bytes(b"#" * (10 * 1024 * 1024 + 1))

    result = call("scripts", "push", str(tmp_path / file))

    assert result.exit_code == 1, result.output
    assert message in result.stderr


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["--name", "../x"], "--name"),
        (["--name", "a/b"], "--name"),
        (["--name", "x.zip"], "--name"),
        (["--name", "x" * 129], "--name"),
    ],
)
def test_names_that_no_job_could_use_are_refused(
    call: Call, tmp_path: Path, flags: list[str], hint: str
) -> None:
    script = tmp_path / "report.py"
    script.touch()

    result = call("scripts", "push", str(script), *flags)

    assert result.exit_code == 2, result.output
    assert hint in result.stderr


def test_a_script_that_does_not_compile_is_told_and_pushed(
    call: Call, script_api: Api, tmp_path: Path
) -> None:
    script = tmp_path / "report.py"
    script.write_text("print(")

    pushed = call("scripts", "push", str(script))

    assert pushed.exit_code == 0, pushed.output
    assert "does not compile with Python" in pushed.stderr
    assert len(script_api.requests) == 2


@pytest.mark.parametrize("command", ["up", "demo"])
def test_the_emulator_needs_a_checkout(call: Call, command: str) -> None:
    result = call(command, "--emulator")

    assert result.exit_code == 1
    assert "not in a checkout" in result.stderr


def test_the_embedded_stack_has_no_limits_of_aws(call: Call) -> None:
    result = call("up", "--strict")

    assert result.exit_code == 1
    assert "--strict needs --emulator" in result.stderr
    assert "nextfire up --emulator --strict" in result.stderr


def test_down_without_a_stack_leaves_no_files(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = call("down", "--yes")

    assert result.exit_code == 0, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_module_is_the_command_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nextfire_cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "Schedules jobs" in done.stdout
