"""The commands for runs: lists of dead runs, logs, cancel, redrive."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from nextfire.adapters.aws.clients import SystemClock
from nextfire_cli import runs
from tests.unit.cli.answers import CANCELLED, DEAD, ID, OTHER, RUN, RUNNING, problem
from tests.unit.cli.conftest import Api, Call

# Dead runs


def test_the_dead_of_all_jobs_are_listed_page_by_page(call: Call, api: Api) -> None:
    api.routes["GET /v1/executions"] = [
        {"items": [DEAD], "cursor": "c"},
        {"items": [], "cursor": "d"},
        {"items": [DEAD | {"executionId": OTHER}]},
    ]

    result = call("runs", "list", "--state", "dead", "--pool", "batch", "--to", "2030-01-01")

    assert result.exit_code == 0, result.output
    assert [each.get("cursor") for each in api.queries] == [None, "c", "d"]
    assert api.queries[0] == {"state": "DEAD", "pool": "batch", "to": "2030-01-01", "limit": "20"}
    assert ID in result.stdout
    assert OTHER in result.stdout
    assert "exit code \\x1b[2J" in result.stdout


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ([], {}),
        (["--state", "running"], {"state": "RUNNING"}),
        (["--pool", "batch", "--until", "2030-01-01"], {"pool": "batch", "to": "2030-01-01"}),
        (["job_1", "--state", "SKIPPED"], {"state": "SKIPPED", "jobId": "job_1"}),
        (["job_1", "--from", "2030-01-01"], {"from": "2030-01-01", "jobId": "job_1"}),
        (["job_1", "--state", "DEAD"], {"state": "DEAD", "jobId": "job_1"}),
    ],
)
def test_runs_of_all_jobs_or_some_of_one(
    call: Call, api: Api, args: list[str], asked: dict[str, str]
) -> None:
    api.routes["GET /v1/executions"] = [{"items": [], "cursor": "a."}, {"items": [RUNNING]}]

    result = call("runs", "list", *args)

    assert result.exit_code == 0, result.output
    assert api.queries == [asked | {"limit": "20"}, asked | {"limit": "20", "cursor": "a."}]
    assert ID in result.stdout
    assert "RUNNING" in result.stdout


def test_runs_of_jobs_with_labels_are_searched_in_large_pages(call: Call, api: Api) -> None:
    api.routes["GET /v1/executions"] = [{"items": [], "cursor": "a."}, {"items": [RUNNING] * 3}]

    result = call(
        "runs", "list", "--label", "team=etl", "--label", "env=prod", "--limit", "2", "--json"
    )

    assert result.exit_code == 0, result.output
    asked = {"label": "team:etl,env:prod", "limit": "100"}
    assert api.queries == [asked, asked | {"cursor": "a."}]
    assert len(json.loads(result.stdout)["items"]) == 2
    assert "There may be more than 2: raise --limit." in result.stderr


def test_spans_are_relative_to_now(call: Call, api: Api) -> None:
    api.routes["GET /v1/executions"] = [{"items": []}]

    before = SystemClock().now()
    result = call("runs", "list", "--state", "DEAD", "--since", "12h", "--to", "PT1H", "--json")

    assert json.loads(result.stdout) == {"items": []}
    asked = api.queries[0]
    since, to = (datetime.fromisoformat(asked[name]) for name in ("from", "to"))
    assert timedelta(hours=11) - (to - since) < timedelta(seconds=5)
    assert timedelta() <= since - (before - timedelta(hours=12)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["job_1", "--state", "SUCCEEDED"], "Only the last 24 h were searched: --since 7d looks"),
        (["--until", "2030-01-01"], "Only the 24 h before --until were searched: --since 7d looks"),
        (["--since", "7d"], ""),
    ],
)
def test_an_empty_list_says_how_far_back_it_looked(
    call: Call, api: Api, args: list[str], said: str
) -> None:
    api.routes["GET /v1/executions"] = [{"items": []}]

    result = call("runs", "list", *args)

    assert result.stdout == "No run matches.\n"
    assert result.stderr.startswith(said)
    assert bool(result.stderr) is bool(said)


def took(number: int, seconds: int) -> dict[str, Any]:
    """A run that took *seconds*."""
    begun = datetime(2026, 5, 24, 10, tzinfo=UTC)
    times = {"startedAt": begun, "finishedAt": begun + timedelta(seconds=seconds)}
    return RUN | {"executionId": f"{ID}{number}", **{k: v.isoformat() for k, v in times.items()}}


def test_the_slowest_of_all_runs_come_first(call: Call, api: Api) -> None:
    waits = RUN | {"state": "PENDING", "startedAt": "2020-05-24T10:00:00Z"}  # for its retry
    pages = [{"items": [took(1, 5), took(2, 60)], "cursor": "a."}, {"items": [waits, took(3, 9)]}]
    api.routes["GET /v1/executions"] = pages

    result = call(
        "runs", "list", "--slowest", "--since", "2026-05-20", "--limit", "2", "-o", "name"
    )

    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [f"{ID}2", f"{ID}3"]
    assert "There may be more than 2: raise --limit." in result.stderr
    hangs = RUN | {"state": "RUNNING", "startedAt": "2020-05-24T10:00:00Z"}
    api.routes["GET /v1/executions"] = [{"items": [took(2, 60), hangs]}]
    first = call("runs", "list", "--slowest", "--limit", "1", "-o", "name").stdout
    assert first.strip() == hangs["executionId"], "a run that hangs has taken long"
    dead = [{"items": [took(1, 5) | {"state": "DEAD"}]}]
    api.routes["GET /v1/executions"] = dead
    assert "TOOK" in call("runs", "list", "--slowest", "--state", "DEAD").stdout


def test_the_slowest_of_too_many_runs_says_so(
    call: Call, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_MOST_SORTED", 2)
    api.routes["GET /v1/executions"] = [{"items": [took(1, 5), took(2, 6)], "cursor": "a."}]

    result = call("runs", "list", "job_1", "--slowest")

    assert "Only 2 runs were looked at: narrow --since and --until." in result.stderr
    assert result.stdout.index(f"{ID}2") < result.stdout.index(f"{ID}1")


@pytest.mark.parametrize(
    "args",
    [
        ["--state", "FAILED"],
        ["--follow"],
        ["job_1", "--slowest", "--follow"],
        ["--state", "DEAD", "--follow"],
        ["--state", "DEAD", "--since", "99999999999d"],
        ["job_1", "--state", "DEAD", "--follow"],
        ["job_1", "--since", "1h", "--follow"],
        ["job_1", "--label", "team=etl", "--follow"],
        ["--label", "etl"],
        ["--label", "team=a,b"],
    ],
)
def test_wrong_usage_of_the_list(call: Call, api: Api, args: list[str]) -> None:
    result = call("runs", "list", *args)

    assert result.exit_code == 2, result.output
    assert not api.requests


# Logs


def lines(*texts: str, attempt: int = 1) -> list[dict[str, Any]]:
    return [
        {"attempt": attempt, "at": "2026-05-24T10:00:00.5Z", "stream": "stdout", "text": text}
        for text in texts
    ]


def test_a_log_is_printed_to_its_end(call: Call, api: Api) -> None:
    api.routes[f"GET /v1/executions/{ID}/logs"] = [
        {"items": lines("one", "a\tb\x1b[2J [bold]x[/]"), "cursor": "1", "ended": True},
        {"items": lines("two", attempt=2), "ended": True},
    ]

    result = call("runs", "logs", ID)

    assert result.stdout == "one\na\tb\\x1b[2J [bold]x[/]\ntwo\n"
    assert result.stderr == "Attempt 2\n"
    assert api.queries == [{"limit": "1000"}, {"limit": "1000", "cursor": "1"}]


def test_logs_without_follow_do_not_wait_for_more_output(call: Call, api: Api) -> None:
    api.routes[f"GET /v1/executions/{ID}/logs"] = [
        {"items": lines("one"), "cursor": "1", "ended": False},
        {"items": [], "cursor": "1", "ended": False},
    ]

    result = call("runs", "logs", ID, "--json", "--attempt", "3")

    assert [each["text"] for each in json.loads(result.stdout)["items"]] == ["one"]
    assert len(api.requests) == 2
    assert api.queries[1] == {"limit": "1000", "cursor": "1", "attempt": "3"}


@pytest.mark.parametrize("flags", [[], ["--json"], ["--timestamps"]])
def test_follow_continues_until_the_run_has_ended(call: Call, api: Api, flags: list[str]) -> None:
    api.routes[f"GET /v1/executions/{ID}/logs"] = [
        {"items": [], "cursor": "0", "ended": False},
        {"items": lines("one"), "cursor": "1", "ended": False},
        {"items": [], "cursor": "1", "ended": False},
        {"items": lines("two"), "cursor": "2", "ended": True},
        {"items": [], "ended": True},
    ]
    api.routes[f"GET /v1/executions/{ID}"] = [DEAD]

    result = call("runs", "logs", ID, "-f", *flags)

    assert result.exit_code == 0, result.output
    if flags == ["--json"]:
        texts = [json.loads(line)["text"] for line in result.stdout.splitlines()]
        assert (texts, result.stderr) == (["one", "two"], "")
    else:
        at = "2026-05-24T10:00:00.5Z    " if flags else ""
        assert result.stdout == f"{at}one\n{at}two\n"
        assert "DEAD" in result.stderr


# Cancel


def test_cancel_sends_why_and_waits_if_asked_to(call: Call, api: Api) -> None:
    api.routes[f"POST /v1/executions/{ID}/cancel"] = [httpx2.Response(202, json=RUNNING)]
    api.routes[f"GET /v1/executions/{ID}"] = [RUNNING, CANCELLED]

    asked = call("runs", "cancel", ID, "--reason", "why")
    waited = call("runs", "cancel", ID, "--wait", "--json")

    assert api.bodies == [{"reason": "why"}, {}]
    assert "RUNNING" in asked.stdout
    assert "to be cancelled" in asked.stdout
    assert "asked to end it" in asked.stderr
    assert json.loads(waited.stdout) == {"items": [CANCELLED]}


def test_a_refused_cancel_shows_why(call: Call, api: Api) -> None:
    api.routes[f"POST /v1/executions/{ID}/cancel"] = [problem(409, "Conflict")]

    result = call("runs", "cancel", ID)

    assert (result.exit_code, result.stderr) == (5, f"Error: {ID}: Conflict (409).\n  Do this.\n")


# Replay


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("DEAD", 1)])
def test_replay_waits_for_the_new_run_if_asked_to(
    call: Call, api: Api, state: str, code: int
) -> None:
    made = DEAD | {"executionId": OTHER, "state": "PENDING", "replayOf": ID}
    api.routes[f"POST /v1/executions/{ID}/replay"] = [httpx2.Response(201, json=made)]
    api.routes[f"GET /v1/executions/{OTHER}"] = [made, made | {"state": state}]

    asked = call("runs", "replay", ID, "--reason", "lost")
    waited = call("runs", "replay", ID, "--wait")

    assert api.bodies == [{"reason": "lost"}, {}]
    assert asked.exit_code == 0
    assert f"{OTHER}  PENDING" in asked.stdout
    assert waited.exit_code == code
    assert f"{OTHER}  {state}" in waited.stdout


# Redrive


@pytest.mark.parametrize(("command", "state"), [("cancel", "CANCELLED"), ("redrive", "PENDING")])
def test_of_several_runs_the_refused_ones_do_not_affect_the_rest(
    call: Call, api: Api, command: str, state: str
) -> None:
    api.routes[f"POST /v1/executions/{ID}/{command}"] = [problem(409, "Conflict")]
    api.routes[f"POST /v1/executions/{OTHER}/{command}"] = [
        DEAD | {"executionId": OTHER, "state": state}
    ]

    result = call("runs", command, ID, OTHER, OTHER, "--reason", "fixed")
    as_json = call("runs", command, ID, OTHER, ID, "--json")

    assert result.exit_code == as_json.exit_code == 1
    assert api.bodies == [{"reason": "fixed"}] * 2 + [{}] * 2
    assert f"{OTHER}  {state}" in result.stdout
    assert f"Error: {ID}: Conflict (409)." in result.stderr
    assert [each["executionId"] for each in json.loads(as_json.stdout)["items"]] == [OTHER]


@pytest.mark.parametrize(("status", "code"), [(404, 3), (403, 4), (409, 5), (503, 6)])
def test_the_exit_code_says_why_a_single_run_was_not_redriven(
    call: Call, api: Api, status: int, code: int
) -> None:
    api.routes[f"POST /v1/executions/{ID}/redrive"] = [problem(status, "No")]

    assert call("runs", "redrive", ID).exit_code == code


# One run


def test_a_run_is_shown_with_result_and_logs(call: Call, api: Api) -> None:
    run = RUNNING | {"result": {"rows": [1]}, "resultBytes": 12, "checkpointBytes": 7}
    api.routes[f"GET /v1/executions/{ID}"] = [run]

    shown = call("runs", "get", ID).stdout

    assert '{"rows": [1]}' in shown
    assert "7 bytes" in shown
    assert f"nextfire runs logs {ID}" in shown
    assert "requested (why)" in shown


def test_run_sends_the_payload_and_shows_the_execution(call: Call, api: Api) -> None:
    pending = {"executionId": ID, "jobId": "a", "state": "PENDING", "trigger": "MANUAL"}
    api.routes["POST /v1/jobs/a/run"] = [httpx2.Response(201, json=pending)]

    plain = call("jobs", "run", "a")
    detailed = call("jobs", "run", "a", "--payload", '{"day": 1}', "--reason", "why")
    null = call("jobs", "run", "a", "--payload", "null")
    wrong = call("jobs", "run", "a", "--payload", "{")

    assert [each.exit_code for each in (plain, detailed, null, wrong)] == [0, 0, 0, 2]
    assert api.bodies == [{}, {"payload": {"day": 1}, "reason": "why"}, {"payload": None}]
    assert ID in detailed.stdout


def test_the_next_is_skipped_and_that_undone(call: Call, api: Api) -> None:
    job: dict[str, Any] = {"jobId": "a", "state": "ACTIVE", "type": "CRON"}
    job |= {
        "schedule": "* * * * *",
        "target": {"pool": "default", "handler": "h"},
        "skips": ["2026-05-24T12:00:00Z"],
    }
    api.routes |= {"POST /v1/jobs/a/skip-next": [job], "DELETE /v1/jobs/a/skip-next": [job]}

    asked = call("jobs", "skip-next", "a", "--reason", "why", "--json")
    undone = call("jobs", "skip-next", "a", "--undo", "--json")
    wrong = call("jobs", "skip-next", "a", "--undo", "--reason", "why")

    assert [each.exit_code for each in (asked, undone, wrong)] == [0, 0, 2]
    assert api.bodies == [{"reason": "why"}]
    assert [each.method for each in api.requests] == ["POST", "DELETE"]
