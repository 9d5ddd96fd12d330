"""Wrong usage is answered with what was probably meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Api, Call


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("get jobs", "Try: nextfire jobs get"),
        ("describe job_1", "Try: nextfire jobs get"),
        ("logs job_1", "Try: nextfire runs logs EXECUTION_ID"),
        ("version", "Try: nextfire --version"),
        ("job list", "Did you mean 'jobs'?"),
        ("jobs describe job_1", "Try: nextfire jobs get"),
        ("jobs edit job_1", "Try: nextfire jobs update"),
        ("jobs rm job_1", "Try: nextfire jobs delete"),
        ("jobs logs job_1", "Try: nextfire runs logs EXECUTION_ID"),
        ("keys rm 1", "Try: nextfire keys revoke"),
        ("runs retry x", "Try: nextfire runs redrive"),
        ("scripts get hello", "Try: nextfire scripts versions"),
        ("secrets frobnicate", "No such command 'frobnicate'."),
        ("jobs create nightly --in 5s --handler a", "If it is the id of the job: --id nightly."),
        ("jobs create --cron 0 3 * * * --handler a", "Quote a value with spaces: --cron '0 3 * *"),
        ("jobs create --name My report --in 5s", "Quote values with spaces."),
        ("jobs delete a b", "takes one JOB_ID: repeat the command for each, or use --label"),
        ("runs cancel a b --downstream", "with --downstream, name one run"),
        ("runs logs a b", "takes one EXECUTION_ID: repeat the command for each."),
        ("jobs list nightly", "To show one: nextfire jobs get nightly"),
        ("export nightly", "It takes options only."),
        ("secrets put TOKEN abc", "The value is read from standard input or --file"),
        ("jobs create --tz Europe/Paris", "(Possible options: --timezone)"),
        ("jobs create --schedule x", "(Possible options: --at, --cron, --date, --every, --in)"),
        ("jobs create --depends-on extract", "(Possible options: --after)"),
        ("apply -f pipeline.yaml --diff", "(Possible options: --dry-run)"),
        ("runs why x", "Try: nextfire runs get"),
        ("jobs list -l team=etl", "(Possible options: --label)"),
        ("jobs delete a --force", "(Possible options: --yes)"),
        ("jobs list -v", "(Possible options: --debug)"),
        ("jobs list --stat ACTIVE", "(Possible options: --state)"),
        ("jobs create --in 5s --every 1m --handler a", "use only one of them"),
        ("jobs create --handler a", "no schedule. Use one of them"),
        ("jobs create --in 5s", "nothing to run. Use one of them"),
        ("schedules preview", "no schedule. Use one of them"),
        ("jobs list --limit abc", "not a whole number (got abc)"),
        ("jobs list --limit 0", "'--limit': must be greater than or equal to 1 (got 0)"),
        ("jobs create --in 5s --max-attempts 101", "less than or equal to 100 (got 101)"),
        ("jobs create --in 5s --secret TOKEN", "'TOKEN' is not NAME=SECRET[#KEY]"),
        ("import crontab.txt", "Try: nextfire apply --file FILE, with a job for each line"),
        ("jobs import crontab.txt", "Try: nextfire apply --file FILE, with a job for each line"),
        ("crontab -l", "Try: nextfire apply --file FILE, with a job for each line"),
        ("preview --cron @daily", "Try: nextfire schedules preview"),
        ("completion bash", "Try: nextfire --install-completion"),
        ("runs failed", "Try: nextfire runs list --state DEAD"),
        ("runs list --state FAILED", "FAILED is the outcome of an attempt: use DEAD"),
        ("runs list --failed", "Try: --state DEAD"),
        ("runs redrive --since 12h", "Try: nextfire dlq redrive --since 12h"),
        ("runs redrive --state DEAD", "Try: nextfire dlq redrive --since 12h"),
        ("runs redrive --all", "Try: nextfire dlq redrive --since 12h"),
        ("apply -f jobs.yaml --prune", "left the file are removed without an option"),
        ("jobs create jobs.yaml", "If it is a file: --file jobs.yaml"),
        ("jobs pause a --for 2h", "(Possible options: --until)"),
        ("cost --jobs 5 --runs-per-day many", "'--runs-per-day': not a number (got many)"),
        ("apply jobs.yaml", "'-f'. For example: nextfire apply --file jobs.yaml"),
        ("jobs create --in 5s --http https://a.example --auth bearer", "of a callback is JSON"),
        ("jobs create --type MANUAL", "MANUAL needs --file"),
        ("jobs list -o csv", "'--output' / '-o': 'csv' is not one of"),
    ],
)
def test_wrong_usage_gets_a_hint(call: Call, api: Api, typed: str, hint: str) -> None:
    result = call(*typed.split(" "))

    said = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert hint in said
    assert "Value error" not in said
    assert not api.requests


@pytest.mark.parametrize(("group", "word"), [("jobs", "get"), ("runs", "logs"), ("keys", "rotate")])
def test_a_hint_is_never_a_command_that_exists(call: Call, group: str, word: str) -> None:
    assert "Try:" not in call(group, word).stderr


@pytest.mark.parametrize(
    ("typed", "detail"),
    [
        (
            "--json jobs list --limit abc",
            "Invalid value for '--limit': not a whole number (got abc). See nextfire jobs list --h",
        ),
        ("jobs list --output=json --frob", "No such option: --frob. See nextfire jobs list --help"),
        (
            "jobs delete -o json",
            "Invalid value for JOB_ID: give a JOB_ID, or --label for many jobs.",
        ),
        ("frobnicate --json", "No such command 'frobnicate'. See nextfire --help"),
        (
            "jobs create --in 5s --secret TOKEN -o json",
            "Invalid value for --secret: 'TOKEN' is not NAME=SECRET[#KEY]",
        ),
        ("--json -o csv jobs list", "Invalid value for '--output' / '-o': 'csv' is not one of"),
        ("jobs --json", "Missing command. See nextfire jobs --help"),
        ("--json --region", "Option '--region' requires an argument."),
    ],
)
def test_wrong_usage_is_a_problem_document_for_a_call_that_asks_for_json(
    call: Call, api: Api, typed: str, detail: str
) -> None:
    result = call(*typed.split(" "))

    document: dict[str, Any] = json.loads(result.stderr)
    assert result.exit_code == 2
    assert document["detail"].startswith(detail)
    assert {**document, "detail": ""} == {
        "status": 400,
        "type": "about:blank",
        "title": "Bad Request",
        "detail": "",
    }
    assert not api.requests


@pytest.mark.parametrize(
    "typed", ["jobs list --limit abc -o yaml", "jobs list --limit abc", "jobs list -o csv"]
)
def test_wrong_usage_is_for_people_otherwise(call: Call, typed: str) -> None:
    result = call(*typed.split(" "))

    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")
