"""The transitions of runs, as the protocol's diagram documents them."""

from __future__ import annotations

import re
from pathlib import Path

from nextfire.domain.run import Run

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "protocol.md"
_ABSENT = "[*]"


def _documented() -> frozenset[tuple[str, str]]:
    diagram = _PAGE.read_text().partition("stateDiagram-v2")[2].partition("```")[0]
    return frozenset(re.findall(r"^ +(\S+) --> (\S+):", diagram, re.MULTILINE))


DOCUMENTED = _documented()


def undocumented(was: Run | None, run: Run) -> str | None:
    """The transition from *was* to *run*, if the diagram does not have it."""
    states = _ABSENT if was is None else was.state.value, run.state.value
    if states[0] == states[1] or states in DOCUMENTED:
        return None
    return " → ".join(states)
