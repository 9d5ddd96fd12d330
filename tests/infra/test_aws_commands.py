"""The AWS commands of the pages: their operations, options and values exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.aws_cli import CommandError, parsed
from tests.infra.pages import CODE, PAGES, ROOT

_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|[|(] ?)aws (?!\w+ \w*:)([^|`]*)")
_OF_THE_CLI_ONLY = {("logs", "tail"), ("s3", "sync"), ("s3", "cp"), ("sso", "login")}
"""Commands that AWS's command line adds to the operations of its services."""


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """The commands of *page*, without `aws`, and whether they are in a block."""
    text = page.read_text()
    for block in _FENCED.findall(text):
        for line in _joined(block).splitlines()[1:-1]:
            yield from ((found, True) for found in _in(line.strip()))
    for code in CODE.findall(_joined(_FENCED.sub("", text))):
        yield from ((found, False) for found in _in(code))


def _in(line: str) -> Iterator[str]:
    line = re.sub(r"\$\(date [^)]*\)", "2026-11-01T00:00:00Z", line)
    for found in _COMMAND.findall(line):
        yield found.removesuffix(")").strip()


def _joined(text: str) -> str:
    """*text* with continued lines as one."""
    return re.sub(r"\\\n\s*", " ", text)


ALL = sorted({(page, *each) for page in PAGES for each in commands(page)})


@pytest.mark.parametrize(("page", "command", "whole"), ALL, ids=[each[1] for each in ALL])
def test_a_command_exists_with_its_options(page: Path, command: str, *, whole: bool) -> None:
    words = shlex.split(command)
    if tuple(words[:2]) in _OF_THE_CLI_ONLY:
        return
    try:
        parsed(words, whole=whole)
    except CommandError as error:
        pytest.fail(f"{page.relative_to(ROOT)}: {error}")


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    found = {command for page, command, _ in ALL if page.name == "runbook.md"}

    assert "lambda get-account-settings" in found
    assert any(each.startswith("dynamodb update-table --table-name") for each in found)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("dynamo list-tables", "no such service"),
        ("dynamodb list-table", "no such operation"),
        ("dynamodb update-table --name T", "has no option --name"),
        ("dynamodb update-table --deletion-protection-enabled", "TableName"),
        ("dynamodb update-table --table-name T --stream-specification On=true", "no member On"),
    ],
)
def test_a_wrong_command_is_found(command: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        parsed(shlex.split(command))
