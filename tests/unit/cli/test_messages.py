"""Messages of the API in the words of the command."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from nextfire.client.errors import Fault
from nextfire.domain.errors import NotFoundError
from nextfire_cli.remedies import in_words_of_the_command
from tests.unit.cli.conftest import Api, Call

ROOT = Path(__file__).resolve().parents[3]


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
        (
            "until: not an instant. Without an offset it is UTC; in a URL a `+` is written `%2B`.",
            "--until: not an instant. Without an offset it is UTC.",
        ),
        (
            "target.pool: the pool runs scripts, not HTTP callbacks.",
            "--pool: the pool runs scripts, not HTTP callbacks.",
        ),
        (
            "A sequence can start again: POST /v1/executions/{executionId}/chain/redrive.",
            "A sequence can start again: nextfire runs redrive EXECUTION_ID --from JOB_ID.",
        ),
        ("Use a value of the type that the message names.",) * 2,
    ],
)
def test_the_command_names_commands_instead_of_requests(
    call: Call,
    api: Api,
    said: str,
    shown: str,
) -> None:
    problem = {"title": "Conflict", "status": 409, "detail": said}
    api.routes["POST /v1/jobs"] = [httpx2.Response(409, json=problem)]

    result = call("jobs", "create", "--in", "5s", "--handler", "a")
    as_json = call("jobs", "create", "--in", "5s", "--handler", "a", "--json")

    assert result.stderr == f"Error: Conflict (409).\n  {shown}\n"
    assert json.loads(as_json.stderr)["detail"] == said


def test_the_url_of_a_callback_is_named_by_its_flag(call: Call, api: Api) -> None:
    detail = "target.http.url: not an HTTP URL. For example https://api.example.com/."
    problem = {"title": "Invalid", "status": 422, "detail": detail}
    api.routes["POST /v1/jobs"] = [httpx2.Response(422, json=problem)]

    result = call("jobs", "create", "--in", "5s", "--http", "ftp://example.com", "--pool", "calls")

    assert "  --http: not an HTTP URL." in result.stderr


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("target.env.X.secret", "--secret X: "),
        ("target.env.X.key", "--secret X: "),
        ("target.env.Y.parameter", "--parameter Y: "),
        ("target.env.Z.secret", "target.env.Z.secret: "),  # of the file, or of no flag
    ],
)
def test_the_reference_of_a_variable_is_named_by_its_flag(
    call: Call, api: Api, field: str, shown: str
) -> None:
    problem = {"title": "Invalid", "status": 422, "detail": f"{field}: not a reference."}
    api.routes["POST /v1/jobs"] = [httpx2.Response(422, json=problem)]
    variables = ("--secret", "X=../bad#k", "--parameter", "Y=../bad", "--env", "Z=1")

    result = call("jobs", "create", "--in", "5s", "--handler", "a", *variables)

    assert f"  {shown}not a reference." in result.stderr


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


def test_the_fields_of_a_preview_are_named_by_their_flags(call: Call, api: Api) -> None:
    problem = {"title": "Unprocessable Entity", "status": 422, "detail": "after: not an instant."}
    api.routes["POST /v1/schedules/preview"] = [httpx2.Response(422, json=problem)]

    result = call("schedules", "preview", "--cron", "@daily", "--after", "tomorrow")

    assert result.stderr.endswith("--after: not an instant.\n")


@pytest.mark.parametrize(
    ("noun", "command"),
    [
        ("job", "nextfire jobs list"),
        ("key", "nextfire keys list"),
        ("script", "nextfire scripts list"),
        ("execution", "nextfire runs list JOB_ID"),
    ],
)
def test_what_was_not_found_is_listed_by_a_command(noun: str, command: str) -> None:
    text = in_words_of_the_command(str(NotFoundError(noun, "a")))

    assert text == f"{noun.capitalize()} 'a' was not found. {command} shows the ids."
