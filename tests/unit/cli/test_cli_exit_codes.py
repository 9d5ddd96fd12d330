"""Exit codes by kind of error, and shell completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from nextfire.client import UnreachableError
from nextfire.client.errors import error_of
from nextfire_cli.errors import EXIT_CODES, CliError, exit_code
from tests.unit.cli.conftest import Api, Call

ROOT = Path(__file__).resolve().parents[3]
CODES = {
    400: 2,
    401: 4,
    403: 4,
    404: 3,
    409: 5,
    412: 5,
    422: 2,
    429: 6,
    500: 6,
    503: 6,
}


@pytest.mark.parametrize("status", CODES)
def test_the_exit_code_names_the_kind_of_error(call: Call, api: Api, status: int) -> None:
    problem = {"title": "t", "status": status, "detail": "d", "type": "about:blank"}
    api.routes["DELETE /v1/jobs/job_1"] = [httpx2.Response(status, json=problem)]

    result = call("jobs", "delete", "job_1", "--yes")

    assert result.exit_code == CODES[status] in EXIT_CODES
    assert exit_code(error_of(status, problem, carried="key")) == CODES[status]


def test_without_a_response_it_is_unavailable() -> None:
    assert exit_code(UnreachableError("p", "r", maybe_done=False)) == 6
    assert exit_code(CliError("anything else")) == 1


def test_what_the_command_itself_does_not_find_is_reported_as_by_the_api(
    call: Call, api: Api
) -> None:
    api.routes["GET /v1/scripts"] = {"items": []}

    result = call("scripts", "delete", "absent", "--yes", "--json")

    assert result.exit_code == 3
    assert json.loads(result.stderr) == {
        "status": 404,
        "type": "about:blank",
        "title": "Not Found",
        "detail": "The pool default has no script 'absent'. See nextfire scripts list --pool "
        "default. The name of an archive ends in .zip.",
    }


def test_the_error_that_caused_another_decides() -> None:
    outer = CliError("an apply failed")
    outer.__cause__ = error_of(409, None, carried="key")

    assert exit_code(outer) == 5


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    completed = _completed(shell, "nextfire exp", 1)

    assert "export" in completed
    assert "schedules" not in completed


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("create --overlap Q", ["QUEUE"]), ("list --state P", ["PAUSED"])],
)
def test_the_shell_completes_values(typed: str, expected: list[str]) -> None:
    assert _completed("bash", f"nextfire jobs {typed}", 4).split() == expected


def _completed(shell: str, typed: str, word: int) -> str:
    """What the completion of the *word*th word prints."""
    done = subprocess.run(
        [sys.executable, "-c", "from nextfire_cli.main import app; app(prog_name='nextfire')"],
        env={
            "PATH": os.defpath,
            "PYTHONPATH": f"{ROOT}/layers:{ROOT}/cli",
            "_NEXTFIRE_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": typed,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(word),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.stdout
