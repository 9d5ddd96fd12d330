"""The documents are true: make targets, commands, links, generated pages and tests."""

import ast
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from docs import cli_reference, client_reference, job_reference, settings_reference
from nextfire.domain.definition import JobDefinition
from nextfire_cli import render
from nextfire_cli.main import whole_command
from tests.infra.pages import CODE, DECISIONS, PAGES, README, ROOT, code, tables


def path_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

_GENERATED = {"api.md", "cli.md", "job.md", "settings.md", "python-client.md", "tour.md"}
_WIDTH = 100
CODE_FILES = {
    f"/{path.relative_to(ROOT)}"
    for folder in ("benchmarks", "cli", "docs", "functions", "infra", "layers", "tests")
    for path in (ROOT / folder).rglob("*.py")
}


@pytest.mark.parametrize(
    "page", [each for each in PAGES if each.name not in _GENERATED], ids=path_of
)
def test_text_is_wrapped(page: Path) -> None:
    fenced = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
    text = fenced.sub(lambda code: "\n" * code[0].count("\n"), page.read_text())
    may_be_longer = ("|", "#", "<")  # tables, titles, HTML

    assert [
        f"{number}: {line}"
        for number, line in enumerate(text.splitlines(), start=1)
        if len(line) > _WIDTH
        and not line.startswith(may_be_longer)
        # What cannot be divided: a command, or the name of a test.
        and len(CODE.sub("code", line.removeprefix("- ")).split()) > 1
    ] == []


def commands(page: Path, program: str) -> list[list[str]]:
    """The words after *program* wherever *page* shows it as a command; ```text marks output."""
    text = page.read_text()
    typed = [block for block in FENCED.findall(text) if not block.startswith("```text\n")]
    shown = [line for block in typed for line in block.splitlines()[1:-1]]
    shown += CODE.findall(FENCED.sub("", text))
    pattern = re.compile(rf"^(?:\.venv/bin/)?{program} (.*)")
    matches = [pattern.search(line.partition("  #")[0]) for line in shown]
    found = [match[1].split() for match in matches if match]
    assert found or page != README, f"{page.name} shows no {program}"
    return found


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert {words[0] for words in commands(page, "make")} <= targets


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_commands_and_their_options_exist(page: Path) -> None:
    whole = whole_command()
    for words in commands(page, "nextfire"):
        line = " ".join(["nextfire", *words])
        command: Any = whole
        known = {name for option in command.params for name in option.opts}
        names = iter(words)
        while hasattr(command, "commands"):
            name = next(names, None)
            if name in known:  # an option of `nextfire` itself, such as --version
                break
            assert name in command.commands, line
            command = command.commands[name]
        known |= {name for option in command.params for name in option.opts}
        for word in names:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, line


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(FENCED.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name}: {target}"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


@pytest.mark.parametrize(
    "generated", [job_reference, settings_reference, cli_reference, client_reference]
)
def test_generated_pages_are_up_to_date(generated: ModuleType) -> None:
    assert generated.PAGE.read_text() == generated.page(), "run: make docs"


def test_the_tutorial_shows_what_the_command_prints() -> None:
    shown = " ".join((ROOT / "docs" / "tutorial.md").read_text().split())
    definition = JobDefinition.model_validate(
        {
            "type": "DELAY",
            "schedule": "PT5S",
            "target": {"handler": "hello"},
            "payload": {"name": "you"},
        }
    )
    made = "2026-11-21T04:10:00.412Z"
    job = {
        **definition.model_dump(mode="json", by_alias=True, exclude_none=True),
        "jobId": "job_5f1c0e9a7d2b4c63",
        "state": "ACTIVE",
        "revision": 1,
        "nextFireAt": "2026-11-21T04:10:05.412Z",
        "createdAt": made,
        "updatedAt": made,
    }
    run = {
        "executionId": "job_5f1c0e9a7d2b4c63.20261121T041005412Z-8f14e45fceea167a",
        "state": "SUCCEEDED",
        "scheduledAt": job["nextFireAt"],
        "startedAt": "2026-11-21T04:10:05.455Z",
        "finishedAt": "2026-11-21T04:10:05.515Z",
        "attempt": 1,
    }
    occurrence = {
        "at": "2026-11-22T02:00:00Z",
        "local": "2026-11-22T03:00:00",
        "offset": "+01:00",
    }
    console = Console(width=100, file=io.StringIO(), no_color=True)

    for each in (render.job(job), render.execution_line(run), render.upcoming([occurrence])):
        with console.capture() as printed:
            console.print(each)
        assert " ".join(printed.get().split()) in shown


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_named_tests_exist(page: Path) -> None:
    """Tests as `[tests/FOLDER/]FILE.py::[CLASS::]NAME`, by default in `tests/security`; and files
    of tests.
    """
    text = page.read_text()

    for name, test in re.findall(r"\b((?:tests/[\w/]+/)?test_\w+\.py)::([\w:]+)", text):
        files = [ROOT / name] if "/" in name else [*(ROOT / "tests" / "security").rglob(name)]
        assert any(test in names_in(file) for file in files), f"{name}::{test}"
    for path in re.findall(r"`(tests/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path


def names_in(file: Path) -> set[str]:
    """The tests of *file*; tests of a class as ``Class::test``."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + each.name for each in inner if isinstance(each, ast.FunctionDef)}
    return found


def test_each_section_on_identity_names_tests_and_none_twice() -> None:
    text = (ROOT / "docs" / "operate" / "identity.md").read_text()
    named = re.findall(r"^- `(tests/[^`]+)`$", text, re.MULTILINE)
    sections = re.split(r"^##+ ", text, flags=re.MULTILINE)

    assert [each.splitlines()[0] for each in sections if "- `tests/" not in each] == []
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    "page",
    [each for each in PAGES if "internals" in each.parts or each.parent == ROOT],
    ids=path_of,
)
def test_named_files_of_the_code_exist(page: Path) -> None:
    """Files as `[FOLDER/]NAME.py`; without history, which names files that are gone."""
    if page.name != "CHANGELOG.md":
        for name in re.findall(r"`([a-z_/]+\.py)`", page.read_text()):
            assert any(path.endswith(f"/{name}") for path in CODE_FILES), name


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_tests_named_in_tables_are_there(page: Path) -> None:
    """Tables whose second column is headed `test, in FILE`, or a folder."""
    for rows in tables(page):
        for row in rows:
            for header, names in row.items():
                if header.startswith("test, in "):
                    place = ROOT / code(header)
                    files = place.glob("*.py") if place.is_dir() else [place]
                    source = "".join(file.read_text() for file in files)
                    for name in CODE.findall(names):
                        assert f"def {name}(" in source, f"{code(header)}::{name}"


def test_the_index_of_decisions_lists_each_with_its_title() -> None:
    index = (ROOT / "docs" / "internals" / "decisions" / "README.md").read_text()
    listed = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", index, re.MULTILINE)

    assert [file for _, _, file in listed] == [page.name for page in DECISIONS]
    for number, title, file in listed:
        text = DECISIONS[0].with_name(file).read_text()
        assert file.startswith(f"{int(number):04}-")
        assert text.startswith(f"# {number}. {title}\n")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], file
