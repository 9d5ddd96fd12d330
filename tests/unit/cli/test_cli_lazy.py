"""Commands are imported when they are called."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nextfire_cli.main import _COMMANDS, app, whole_command

ROOT = Path(__file__).resolve().parents[3]


def executed(code: str) -> subprocess.CompletedProcess[str]:
    """*code*, executed by a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{ROOT}/layers:{ROOT}/cli"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_list_of_commands_has_the_help_of_each() -> None:
    commands: dict[str, Any] = whole_command().commands

    assert [*commands] == [*_COMMANDS]
    for name, command in commands.items():
        first = command.help.partition("\n\n")[0].replace("\n", " ")
        assert _COMMANDS[name].help == first, name


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for each, command in group.commands.items():
        full = f"{name} {each}"
        yield from _commands(command, full) if hasattr(command, "commands") else [(full, command)]


def test_the_help_of_each_command_has_examples_of_it() -> None:
    for name, command in _commands(whole_command(), "nextfire"):
        _, heading, examples = command.help.partition("[bold]Example")
        assert heading, name
        assert f" {name}" in examples, name


def test_help_imports_no_command_and_no_client() -> None:
    code = (
        "import sys\n"
        "from nextfire_cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print([each for each in sys.modules if each.partition('.')[0] in"
        " {'pydantic', 'httpx2', 'boto3', 'asyncio', 'markdown_it', 'pygments'}"
        " or each.startswith('nextfire_cli.')],"
        " file=sys.stderr)"
    )
    done = executed(code)

    always = ["errors", "escaping", "extras", "global_options", "lazy", "main", "output"]
    found = done.stderr.replace("nextfire_cli.", "").strip()
    assert sorted(eval(found)) == [*always, "slow_imports"]  # noqa: S307 — our own list
    assert "Print jobs as the file of their pipeline" in done.stdout


@pytest.mark.parametrize(("typed", "meant"), [("job", "jobs"), ("exprt", "export")])
def test_a_misspelt_command_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    result = CliRunner().invoke(app, [typed])

    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr


def test_deferred_modules_are_imported_when_they_are_used() -> None:
    code = (
        "from nextfire_cli.slow_imports import defer_slow_imports\n"
        "defer_slow_imports()\n"
        "import sys, typer.rich_utils as used\n"
        "assert 'markdown_it' not in sys.modules\n"
        "made = used.Markdown('a *b*')\n"
        "import rich.markdown, rich.traceback\n"
        "assert type(made) is rich.markdown.Markdown\n"
        "assert rich.markdown.TextElement\n"
        "try: raise ValueError('x')\n"
        "except ValueError: found = used.Traceback.from_exception(*sys.exc_info())\n"
        "from rich.traceback import Traceback, install\n"
        "assert type(found) is Traceback\n"
        "print('used')"
    )
    done = executed(code)

    assert (done.stdout, done.stderr) == ("used\n", "")


def test_jobs_without_a_file_import_no_yaml() -> None:
    code = "import sys, nextfire_cli.jobs; print('yaml' in sys.modules)"
    done = executed(code)

    assert done.stdout == "False\n"
