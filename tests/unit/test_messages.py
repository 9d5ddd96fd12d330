"""Messages that new users met, as they are now. The earlier text is in the comment."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
from pydantic import ValidationError

from nextfire.client.errors import Fault
from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.invalid_fields import invalid_fields
from nextfire.domain.recurrence import check
from nextfire_cli.durations import whole_seconds
from nextfire_cli.remedies import in_words_of_the_command
from tests.unit.test_cli_runs import Api, Call, api, call  # noqa: F401 — fixtures

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 5, 24, 12, tzinfo=UTC)
JOB: dict[str, Any] = {"type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "a"}}


def refusal(**changes: Any) -> str:
    """What is wrong with the job, with *changes* (None: without the field)."""
    document = {name: value for name, value in (JOB | changes).items() if value is not None}
    try:
        check(JobDefinition.model_validate(document).schedule_from(NOW))
    except ValidationError as error:
        [found] = invalid_fields(error.errors(include_url=False), JobDefinition)
        return str(found)
    except InvalidInputError as error:
        return str(error)
    raise AssertionError("valid")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # type: Field required (got absent). Add this field.
        (
            {"type": None},
            (
                "type: required field is missing. Add one of ONCE, DELAY, CRON, INTERVAL, DATES, "
                "MANUAL, AFTER. For example `CRON`."
            ),
        ),
        # target: Field required (got absent). Add this field.
        ({"target": None}, "target: required field is missing. Add this field."),
        # timeuotSec: Extra inputs are not permitted (got 5). Did you mean `timeoutSec`?
        ({"timeuotSec": 5}, "timeuotSec: unknown field (got 5). Did you mean `timeoutSec`?"),
        # schedule: 'mond' in the day of week field (got '0 3 * * mond').
        ({"schedule": "0 3 * * mond"}, "schedule: 'mond' is not valid in the day of week field"),
        # schedule: not an ISO 8601 instant (got '2027-02-30T00:00:00Z').
        (
            {"type": "ONCE", "schedule": "2027-02-30T00:00:00Z"},
            (
                "schedule: not an ISO 8601 instant: no such date or time (got "
                "'2027-02-30T00:00:00Z')."
            ),
        ),
        (
            {"type": "ONCE", "schedule": "tomorrow"},
            "schedule: not an ISO 8601 instant (got 'tomorrow').",
        ),
        # timezone: no such time zone (got 'Europe/Berln'). Use an IANA name.
        (
            {"timezone": "Europe/Berln"},
            "timezone: time zone not found (got 'Europe/Berln'). Did you mean `Europe/Berlin`?",
        ),
        (
            {"timezone": "new york"},
            "timezone: time zone not found (got 'new york')",
        ),
        # ….states: List should have at least 1 item after validation, not 0
        (
            {"retryPolicy": {"retryOn": {"exitCodes": []}}},
            "retryPolicy.retryOn.exitCodes: an empty list (got []).",
        ),
    ],
)
def test_a_job(changes: dict[str, Any], message: str) -> None:
    assert refusal(**changes).startswith(message)


@pytest.mark.parametrize(
    ("schedule", "remedy"),
    [
        # Give five: minute, hour, day of month, month, day of week; seconds and years are not …
        ("0 0 3 * * 1", "Without its seconds it is `0 3 * * 1`."),
        ("2027-01-01T00:00:00Z", "For one run at an instant write a job of type ONCE"),
        ("2027-01-01 00:00", "For one run at an instant write a job of type ONCE"),
        ("PT5M", "For an interval write a job of type INTERVAL"),
        ("every 5m", "For an interval write a job of type INTERVAL"),
        ("5m", "For an interval write a job of type INTERVAL"),
        ("* * * * * 2027", "seconds and years are not supported."),
        ("0 3 * *", "seconds and years are not supported."),
    ],
)
def test_what_is_not_cron_is_answered_with_what_to_write(schedule: str, remedy: str) -> None:
    assert remedy in refusal(schedule=schedule)


def test_the_examples_of_a_duration_are_in_its_range() -> None:
    # '20h' is not a duration …. Write 30, 30s, 10m, 30d or PT10M.
    with pytest.raises(typer.BadParameter, match=r"to 11 hours\. Write 30, 30s, 10m, 2h or PT10M"):
        whole_seconds("20h", "--timeout", 1, 39_600)
    with pytest.raises(typer.BadParameter, match="Write 30, 30s, 10m, 2h, 30d or PT10M"):
        whole_seconds("31d", "--relevancy-window", 1, 30 * 86_400)


@pytest.mark.parametrize("command", [("runs", "list")])
def test_a_flag_is_named_as_it_was_typed(
    call: Call,  # noqa: F811
    api: Api,  # noqa: F811
    command: tuple[str, ...],
) -> None:
    # Invalid value for --from
    result = call(*command, "--since", "yesterday")

    assert result.exit_code == 2
    assert "Invalid value for --since (--from)" in result.stderr
    assert not api.requests


def test_a_missing_value_is_not_shown_twice() -> None:
    assert str(Fault("a", "absent", "required field is missing", "Add it.")) == (
        "a: required field is missing. Add it."
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "Change it with PATCH, or use another id.",
            "Change it with nextfire jobs update, or use another id.",
        ),
        (
            "Wait until it ends, or stop it: DELETE /v1/jobs/{jobId}/backfill.",
            "Wait until it ends, or stop it: nextfire jobs backfill JOB_ID --stop.",
        ),
        (
            "Use POST /v1/jobs/{jobId}/pause or /resume, or DELETE the job.",
            "Use nextfire jobs pause, nextfire jobs resume or nextfire jobs delete.",
        ),
        (
            "Narrow `from` and `to`, or raise `max`, to 1000 at most.",
            "Narrow --from and --to, or raise --max, to 1000 at most.",
        ),
        ("Use a value of the type that the message names.",) * 2,
    ],
)
def test_the_command_names_commands_instead_of_requests(
    call: Call,  # noqa: F811
    api: Api,  # noqa: F811
    said: str,
    shown: str,
) -> None:
    problem = {"title": "Conflict", "status": 409, "detail": said}
    api.routes["POST /v1/jobs"] = [httpx2.Response(409, json=problem)]

    result = call("jobs", "create", "--in", "5s", "--handler", "a")
    as_json = call("jobs", "create", "--in", "5s", "--handler", "a", "--json")

    assert result.stderr == f"Error: Conflict (409).\n  {shown}\n"
    assert json.loads(as_json.stderr)["detail"] == said


def test_no_remedy_of_the_api_is_a_request_for_users_of_the_command() -> None:
    """Remedies are texts in the sources with a method and a path, or with a header."""
    found = [
        text
        for folder in ("layers/nextfire/domain", "layers/nextfire/usecases")
        for file in (ROOT / folder).rglob("*.py")
        for text in _texts(ast.parse(file.read_text()))
        if _REQUEST.search(text)
    ]

    assert len(found) > 5
    assert [text for text in found if _REQUEST.search(in_words_of_the_command(text))] == []


_REQUEST = re.compile(r"\b(?:GET|POST|PUT|PATCH|DELETE) /v1|\bPATCH\b|Idempotency-Key|If-Match\b")


def _texts(tree: ast.Module) -> Iterator[str]:
    """The texts of *tree* with spaces, without docstrings."""
    docs = [
        each.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for each in node.body
        if isinstance(each, ast.Expr)
    ]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or node in docs:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield node.value
