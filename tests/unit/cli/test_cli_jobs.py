"""What `nextfire jobs` sends for its flags, and the answers that it shows."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nextfire_cli import confirmation
from tests.unit.cli import answers
from tests.unit.cli.answers import BACKFILL, BETWEEN, JOB
from tests.unit.cli.conftest import Api, Call

ROUTES = answers.ROUTES


@pytest.mark.parametrize("written", ["{}", " {}", "@{}"])
def test_the_authentication_of_a_callback_and_that_of_the_command_have_one_flag(
    call: Call, api: Api, tmp_path: Path, written: str
) -> None:
    auth = {"type": "bearer", "token": {"secret": "api-token"}}
    file = tmp_path / "auth.json"
    file.write_text(json.dumps(auth))
    value = written.format(file if "@" in written else json.dumps(auth))
    callback = ["--in", "5s", "--pool", "calls", "--http", "https://api.example.com/"]

    for flag in (["--auth", value], [f"--auth={value}"], ["--auth", "iam", "--auth", value]):
        result = call("jobs", "create", *callback, *flag)

        assert result.exit_code == 0, result.output
        assert api.body["target"]["http"]["auth"] == auth


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


def test_parents_make_a_job_without_a_schedule_one_of_type_after(call: Call, api: Api) -> None:
    parents = ["--after", "extract", "--after", "check"]
    rules = ["--trigger-rule", "all_done", "--join-timeout", "2h", "--deadline", "10m"]

    result = call("jobs", "create", *parents, *rules, "--handler", "load")
    at_night = call("jobs", "create", *parents, "--cron", "0 3 * * *", "--handler", "load")
    in_file = call("jobs", "create", "--after", "a", "-f", "-", input="type: MANUAL\n")
    updated = call("jobs", "update", "job_1", "--after", "extract", "--deadline", "none")

    assert [each.exit_code for each in (result, at_night, in_file, updated)] == [0] * 4
    after = [{"job": "extract"}, {"job": "check"}]
    assert api.bodies == [
        {
            "type": "AFTER",
            "after": after,
            "triggerRule": "ALL_DONE",
            "joinTimeoutSec": 7200,
            "deadlineSec": 600,
            "target": {"handler": "load"},
        },
        {"type": "CRON", "schedule": "0 3 * * *", "after": after, "target": {"handler": "load"}},
        {"type": "MANUAL", "after": [{"job": "a"}]},
    ]
    assert api.body == {"after": [{"job": "extract"}], "deadlineSec": None}


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
    assert ("{JOB_ID}" in shown) == (command == "update")
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


def test_a_backfill_takes_times_ago_and_ends_now_by_default(call: Call, api: Api) -> None:
    before = datetime.now(UTC)  # noqa: TID251 — as the command
    assert call("jobs", "backfill", "job_1", "--from", "7d").exit_code == 0
    since, to = (datetime.fromisoformat(api.body[name]) for name in ("from", "to"))
    assert to - since == timedelta(days=7)
    assert timedelta(seconds=-1) <= to - before < timedelta(minutes=1)

    assert call("jobs", "backfill", "job_1", "--from", "7d", "--to", "PT24H").exit_code == 0
    since, to = (datetime.fromisoformat(api.body[name]) for name in ("from", "to"))
    assert to - since == timedelta(days=6)

    wrong = call("jobs", "backfill", "job_1", "--from", "last week")
    assert wrong.exit_code == 2
    assert "--from: 'last week' is not a time" in " ".join(wrong.stderr.split())


def test_a_backfill_that_continues_is_shown_with_its_job(call: Call, api: Api) -> None:
    api.routes["GET /v1/jobs/job_1"] = JOB | {"backfill": BACKFILL}
    assert "48 occurrences" in call("jobs", "get", "job_1").stdout


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_delete_names_yes_where_no_one_can_answer(
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
