"""Each section of docs/operate/identity.md names the tests that prove it, and the tests named by
other pages on security exist.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operate" / "identity.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^- `(tests/[^`]+)`$", PAGE, re.MULTILINE)
PAGES = ("operate/security.md", "guide/scripts.md", "operate/audit.md")
"""A test is named ``path::name``; without a folder it is below `tests/security`."""
ELSEWHERE = [
    (page, name)
    for page in PAGES
    for name in re.findall(
        r"`((?:[\w/]+/)?test_\w+\.py::[\w:]+)`", (ROOT / "docs" / page).read_text(encoding="utf-8")
    )
]


def names_in(file: Path) -> set[str]:
    """The tests of *file*; tests of a class as ``Class::test``."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {
            prefix + each.name
            for each in inner
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
        }
    return found


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert (ROOT / path).is_file(), f"{path} does not exist"
    assert test in names_in(ROOT / path), f"{path} has no {test}"


@pytest.mark.parametrize(("page", "name"), ELSEWHERE)
def test_a_test_that_another_page_names_exists(page: str, name: str) -> None:
    path, _, test = name.partition("::")
    found = [ROOT / path] if "/" in path else [*(ROOT / "tests" / "security").rglob(path)]
    file = next((each for each in found if each.is_file()), None)
    assert file is not None, f"{page}: {path} does not exist"
    assert test in names_in(file), f"{page}: {path} has no {test}"


@pytest.mark.parametrize("page", PAGES)
def test_other_pages_name_tests(page: str) -> None:
    assert any(each == page for each, _ in ELSEWHERE) or page == "guide/scripts.md"


def test_each_section_names_tests() -> None:
    sections = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
    without = [each.splitlines()[0] for each in sections if "- `tests/" not in each]
    assert without == []


def test_no_test_is_named_twice() -> None:
    assert len(NAMED) == len(set(NAMED))
