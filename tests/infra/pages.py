"""Pages of the documentation: their tables, code and commands."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
POLICIES = ROOT / "docs" / "guide" / "policies.md"
API = ROOT / "docs" / "reference" / "api.md"
RUNS = ROOT / "docs" / "guide" / "runs.md"
SCRIPTS = ROOT / "docs" / "guide" / "scripts.md"
SETTINGS = ROOT / "docs" / "reference" / "settings.md"
EVENTS = ROOT / "docs" / "reference" / "events.md"
PAGES = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
DECISIONS = sorted((ROOT / "docs" / "internals" / "decisions").glob("0*.md"))
CODE = re.compile(r"`([^`\n]+)`")

Row = dict[str, str]


def tables(page: Path) -> Iterator[list[Row]]:
    """Each table of *page*: its rows, by the words of its header."""
    lines = [line.strip() for line in page.read_text().splitlines()]
    for number, line in enumerate(lines):
        if not re.fullmatch(r"\|(-+\|)+", line):
            continue
        header = cells(lines[number - 1])
        rows = []
        for row in lines[number + 1 :]:
            if not row.startswith("|"):
                break
            rows.append(dict(zip(header, cells(row), strict=True)))
        yield rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def code(text: str) -> str:
    """The only code span in a cell."""
    [found] = CODE.findall(text)
    return str(found)
