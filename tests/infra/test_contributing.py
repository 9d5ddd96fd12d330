"""The lists "How to change ..." in CONTRIBUTING.md: their files exist, and their steps are few."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = {
    "a schedule type": 4,
    "a kind of target": 6,
    "a field of a job": 3,
    "a route": 6,
    "a response": 0,
    "a table attribute": 2,
    "a setting": 4,
    "an alarm": 2,
}
"""By subject, the number of steps in its list, without those about tests and documentation. A step
changes one file; files that it names as alternatives (the store of one table or of another) count
once. A response has no list: its change is one row of one file.
"""


@dataclass(frozen=True, slots=True)
class Example:
    """What a list adds, by the names that it has in the code of the product: in `files` files. In
    addition to those that the list names, `elsewhere`: the code that uses or shows it.
    """

    names: tuple[str, ...]
    files: int
    elsewhere: frozenset[str] | set[str] = frozenset()


EXAMPLES = {
    "a schedule type": Example(("INTERVAL",), 6),
    "a kind of target": Example(("HTTP",), 3),
    "a field of a job": Example(
        ("maxRuns", "max_runs"),
        4,
        {"layers/nextfire/domain/occurrences.py", "layers/nextfire/domain/preview.py"},
    ),
    "a route": Example(
        ("replay", "replay_execution"),
        4,
        {
            "functions/api/routes/executions.py",
            "layers/nextfire/client/executions.py",
            "layers/nextfire/usecases/request_runs.py",
            "cli/nextfire_cli/runs.py",
        },
    ),
    "a response": Example(
        ("checkpoint_bytes", "checkpointBytes"),
        2,
        {"layers/nextfire/responses/executions.py", "cli/nextfire_cli/render/run_details.py"},
    ),
    "a table attribute": Example(
        ("replay_of",),
        5,
        {
            "layers/nextfire/responses/executions.py",
            "layers/nextfire/targets/http/runner.py",
            "layers/nextfire/usecases/request_runs.py",
        },
    ),
    "a setting": Example(
        ("log_sample", "logSample"),
        5,
        {"functions/executor/handler.py", "functions/worker/worker.py"},
    ),
    "an alarm": Example(("QUARANTINED", "Quarantined"), 3),
}
FOLDERS = ("", "layers/nextfire", "layers/nextfire/domain", "layers/nextfire/adapters/dynamodb")
_CODE = re.compile(r"`([^`\n]+\.py)`")
_STEP = re.compile(r"^[0-9]+\. .*\n(?: +.*\n)*", re.MULTILINE)


def lists() -> dict[str, str]:
    """By subject, the text of each section "How to change SUBJECT"."""
    page, change = (ROOT / "CONTRIBUTING.md").read_text(), "How to change "
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    return {
        each.partition("\n")[0].removeprefix(change): each
        for each in sections
        if each.startswith(change)
    }


def paths(text: str) -> set[str]:
    """The Python files that *text* names, relative to the root; without patterns."""
    found: set[str] = set()
    for name in _CODE.findall(text):
        if "*" in name or "AREA" in name:
            continue
        folders = [*FOLDERS, *sorted({str(Path(path).parent) for path in found})]
        matching = [folder for folder in folders if (ROOT / folder / name).is_file()]
        assert matching, f"CONTRIBUTING.md names {name}, which does not exist"
        found.add(str(Path(matching[0]) / name))
    return found


def test_every_list_is_counted() -> None:
    assert lists().keys() == MOST.keys()


@pytest.mark.parametrize("subject", MOST)
def test_a_change_takes_few_steps(subject: str) -> None:
    text = lists()[subject]
    paths(text)

    steps = [
        step
        for step in _STEP.findall(text)
        if not re.match(r"[0-9]+\. (Tests|Documentation|Permissions: `tests|`tests/)", step)
        and "If the API shows it" not in step
    ]

    assert len(steps) == MOST[subject], "".join(steps)


@pytest.mark.parametrize("subject", EXAMPLES)
def test_an_example_is_in_the_files_of_its_list(subject: str) -> None:
    example, text = EXAMPLES[subject], lists()[subject]

    found = files_with({*example.names})

    assert found - paths(text) == example.elsewhere
    assert len(found) == example.files


def files_with(names: set[str]) -> set[str]:
    """The files of the product whose code has one of *names*."""
    return {
        str(path.relative_to(ROOT))
        for folder in ("layers", "functions", "infra", "cli", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if any(name in (text := path.read_text()) for name in names)
        if names & set(names_in(ast.parse(text)))
    }


def names_in(tree: ast.AST) -> Iterator[str]:
    """The names, and the whole strings, in the code of *tree*."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.Name(id=name):
                yield name
            case ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                yield name
