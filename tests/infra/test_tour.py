"""The tour shows the screens of the tutorial's commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import tour

DOCS = Path(tour.__file__).parent
SECTIONS = [*tour.sections((DOCS / "tutorial.md").read_text())]


@pytest.mark.parametrize(("title", "text"), SECTIONS, ids=[title for title, _ in SECTIONS])
def test_the_tour_shows_each_command_of_the_tutorial(title: str, text: str) -> None:
    page = (DOCS / "tour.md").read_text()
    shown = page.partition(f"## {title}\n")[2].partition("\n## ")[0]

    for command in tour.commands(text):
        typed = re.escape(command).replace("JOB_ID", r"\S+").replace("EXECUTION_ID", r"\S+")
        assert re.search(rf"^\$ {typed}$", shown, re.MULTILINE), f"run `make tour`: {command}"


def test_there_are_sections() -> None:
    assert len(SECTIONS) == len(tour.SECTIONS)
