"""A file has one idea and at most 350 lines, unless it is a table."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = 350
TABLES = {
    "tests/unit/test_clock_changes.py": "cases by time zone, and what is due in each",
    "tests/unit/test_first_day_messages.py": "what new users typed, and the message now",
    "tests/integration/test_error_mapping.py": "each call of each adapter",
}
"""Files that are a table of cases, by what their rows are."""


def long_files() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.splitlines()]
    return {
        str(file.relative_to(ROOT))
        for file in files
        if file.is_file() and len(file.read_text(encoding="utf-8").splitlines()) > LINES
    }


def test_files_are_short() -> None:
    found = long_files() - TABLES.keys()

    assert not found, f"over {LINES} lines: split by idea, or list as a table with its reason"


def test_every_exception_is_needed() -> None:
    assert not TABLES.keys() - long_files(), "short enough now: remove it from the list"
